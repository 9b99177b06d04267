package certify

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/scenarios"
)

// follower decides by the policy in a file, and reads it again when the file has changed. A file that is being
// written is read at the next review.
type follower struct {
	path   string
	holder *policy.Holder

	mu   sync.Mutex
	when time.Time
	size int64
}

// follow reads the policy in a file, as certify policy -o json prints it.
func follow(path string) (*follower, error) {
	f := &follower{path: path}
	p, err := f.read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.holder = policy.NewHolder(p)
	return f, nil
}

// read returns nil if the file is as it was.
func (f *follower) read() (*policy.Policy, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, err
	}
	if info.ModTime().Equal(f.when) && info.Size() == f.size {
		return nil, nil
	}
	raw, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	p, err := policy.Parse(raw)
	if err == nil {
		f.when, f.size = info.ModTime(), info.Size()
	}
	return p, err
}

// decide is a reference.Decider.
func (f *follower) decide(s spec) scenarios.Decision {
	if p, err := f.read(); err == nil && p != nil {
		f.holder.Set(p)
	}
	return f.holder.Decide(s)
}
