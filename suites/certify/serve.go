package certify

import (
	"os"

	"github.com/authzconf/authzconf/authorizers/policy"
	"github.com/authzconf/authzconf/authorizers/reference"
)

// ServeReference runs the reference authorizer with the policy of a seed, and writes
// the kubeconfig for it.
func ServeReference(b *Book, kubeconfig string) (stop func() error, err error) {
	s, err := reference.Start(reference.Handler(b.Policy.Decide), nil)
	if err != nil {
		return nil, err
	}
	raw, err := s.Kubeconfig()
	if err == nil {
		// It holds a client key. A file that is there already is not followed.
		_ = os.Remove(kubeconfig)
		err = os.WriteFile(kubeconfig, raw, 0o600)
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s.Close, nil
}

// PolicyFormats are the forms that a policy can be printed in.
func PolicyFormats() []string { return policy.Formats() }
