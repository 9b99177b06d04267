package kind

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/authzconf/authzconf/clusters/local"
)

const (
	statePrefix = "kind-"
	lockFile    = "lock"
	configDir   = "config"
	auditDir    = "audit"
)

// state is the folder of one cluster on this machine, locked as long as its run
// lives: that is how others know that it is in use.
type state struct {
	path string
	lock *local.FileLock
}

func statePath(name string) (string, error) {
	root, err := local.StateRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, statePrefix+name), nil
}

// newState makes the folder of a new cluster, under a name that none has.
func newState(asked string) (name string, s *state, err error) {
	name = NamePrefix + strings.Trim(asked+"-"+utilrand.String(6), "-")
	path, err := statePath(name)
	if err != nil {
		return "", nil, err
	}
	for _, sub := range []string{configDir, auditDir} {
		if err := os.MkdirAll(filepath.Join(path, sub), 0o700); err != nil {
			return "", nil, &local.UsageError{Problem: fmt.Sprintf("cannot make the folder of a cluster: %v", err), Hint: "set " + local.StateVariable + " to a folder that can be written", Err: err}
		}
	}
	lock, err := local.TryLock(filepath.Join(path, lockFile))
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(path))
	}
	return name, &state{path: path, lock: lock}, nil
}

// inUse says whether the run of a cluster lives.
func inUse(name string) bool {
	path, err := statePath(name)
	if err != nil {
		return false
	}
	lock, err := local.TryLock(filepath.Join(path, lockFile))
	if err != nil {
		return errors.Is(err, local.ErrLocked)
	}
	lock.Unlock()
	return false
}

// removeState removes the folder of a cluster that is gone.
func removeState(name string) error {
	path, err := statePath(name)
	if err != nil {
		return err
	}
	return os.RemoveAll(path)
}

func (s *state) config() string { return filepath.Join(s.path, configDir) }
func (s *state) audit() string  { return filepath.Join(s.path, auditDir) }

// write puts files, readable by this user only, into the API server's folder,
// each in one step: who reloads one never sees a half.
func (s *state) write(files map[string][]byte) error {
	for name, data := range files {
		if err := local.WriteFile(filepath.Join(s.config(), name), data); err != nil {
			return err
		}
	}
	return nil
}

// leave gives the lock up, and removes the folder unless it is kept.
func (s *state) leave(keep bool) error {
	defer s.lock.Unlock()
	if keep {
		return nil
	}
	return os.RemoveAll(s.path)
}

// tailPoll is the pause between two looks at a file that has not grown.
const tailPoll = time.Millisecond

// tail hands what is appended to a file to a sink.
type tail struct {
	file *os.File
	sink io.Writer
	quit chan struct{}
	done chan struct{}
	err  atomic.Pointer[error]
}

// follow begins with an empty file, which it makes: so the file belongs to this user, whoever writes to it.
func follow(path string, sink io.Writer) (*tail, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	t := &tail{file: file, sink: sink, quit: make(chan struct{}), done: make(chan struct{})}
	go t.run()
	return t, nil
}

func (t *tail) run() {
	defer close(t.done)
	buffer := make([]byte, 64<<10)
	for {
		n, err := t.file.Read(buffer)
		if n > 0 {
			if _, err := t.sink.Write(buffer[:n]); err != nil {
				t.fail(fmt.Errorf("audit events were lost: the audit sink failed: %w", err))
				return
			}
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			t.fail(fmt.Errorf("audit events were lost: %w", err))
			return
		}
		select {
		case <-t.quit:
			return
		case <-time.After(tailPoll):
		}
	}
}

func (t *tail) fail(err error) { t.err.Store(&err) }

func (t *tail) failure() error { return ptr.Deref(t.err.Load(), nil) }

func (t *tail) stop() error {
	close(t.quit)
	<-t.done
	return errors.Join(t.failure(), t.file.Close())
}
