package certify

import (
	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
)

// ServeReference runs the reference authorizer with the policy of a seed, or with that in a file, which it
// follows, if one is named. It writes the kubeconfig for it.
func ServeReference(b *Plan, policyFile, kubeconfig string) (stop func() error, err error) {
	decide := b.decider()
	if policyFile != "" {
		f, err := follow(policyFile)
		if err != nil {
			return nil, err
		}
		decide = f.decide
	}
	return reference.ServeFor(reference.Handler(decide), kubeconfig, (*reference.Server).Kubeconfig)
}

// PolicyFormats are the forms that a policy can be printed in.
func PolicyFormats() []string { return policy.Formats() }
