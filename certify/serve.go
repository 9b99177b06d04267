package certify

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

// ServeReference runs the reference authorizer, and writes the kubeconfig for it. The authorizer has the policy of a
// seed or, if a file is named, the policy in that file, as certify policy -o json prints it. It follows changes of the
// file; if the file is being written, it is read again at the next review.
func ServeReference(plan *Plan, policyFile, kubeconfig string) (stop func() error, err error) {
	decide := plan.decider()
	if policyFile != "" {
		file, first, err := reference.Follow(policyFile, func(path string, raw []byte) (*policy.Policy, error) {
			p, err := policy.Parse(raw)
			if err != nil {
				err = fmt.Errorf("%s: %w", path, err)
			}
			return p, err
		})
		if err != nil {
			return nil, err
		}
		holder := policy.NewHolder(first)
		decide = func(s spec) scenarios.Decision {
			if p, changed, _ := file.Changed(); changed {
				holder.Store(p)
			}
			return holder.Decide(s)
		}
	}
	return reference.ServeFor(reference.Handler(decide), kubeconfig, (*reference.Server).Kubeconfig)
}

// Serve serves reviews by TLS with a handler, and returns how to reach it.
func Serve(h http.Handler) (w *Webhook, stop func() error, err error) {
	s, err := reference.Start(h, nil)
	if err != nil {
		return nil, nil, err
	}
	raw, err := s.Kubeconfig()
	if err == nil {
		w, err = ParseWebhook(raw, "")
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return w, s.Close, nil
}

func (b *Plan) decider() reference.Decider {
	return func(s spec) scenarios.Decision { return b.Policy.Decide(s) }
}
