package certification

import (
	"bytes"
	"net/http"
	"os"
	"sync"

	webhook "github.com/authzconf/authzconf/certify/reference"
	reference "github.com/authzconf/authzconf/conditional/reference"
)

// ServeReference runs the reference authorizer with the policies of a file, and writes the kubeconfig for it. The
// file is read again when it has changed, so that a policy hook may overwrite it.
func ServeReference(policies, kubeconfig string) (stop func() error, err error) {
	f := &policyFile{path: policies}
	first, err := f.load()
	if err != nil {
		return nil, err
	}
	a := reference.New(first)
	right := reference.Handler(a)
	return webhook.ServeFor(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		changed, err := f.load()
		if err != nil {
			http.Error(w, "the policies cannot be read", http.StatusInternalServerError)
			return
		}
		if changed != nil {
			a.Use(changed)
		}
		right.ServeHTTP(w, req)
	}), kubeconfig, reference.Kubeconfig)
}

// policyFile is a file that may change.
type policyFile struct {
	path string
	mu   sync.Mutex
	last []byte
}

// load reads it; nil means that it is as it was.
func (f *policyFile) load() (*reference.Snapshot, error) {
	raw, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil && bytes.Equal(raw, f.last) {
		return nil, nil
	}
	s, err := reference.Load(f.path, raw)
	if err == nil {
		f.last = raw
	}
	return s, err
}
