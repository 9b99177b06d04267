package certify

import (
	"os"

	"github.com/authzconf/authzconf/authorizers/policy"
	"github.com/authzconf/authzconf/authorizers/reference"
)

// ServeReference runs the reference authorizer with the policy of a seed, or with
// that in a file, which it follows, if one is named. It writes the kubeconfig for it.
func ServeReference(b *Book, policyFile, kubeconfig string) (stop func() error, err error) {
	decide := b.decider()
	if policyFile != "" {
		f, err := follow(policyFile)
		if err != nil {
			return nil, err
		}
		decide = f.decide
	}
	s, err := reference.Start(reference.Handler(decide), nil)
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
