package certify

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/engine/product"
)

// NewSafePlan returns the plan of level safe, which asks only about what nobody was granted. The authorizer needs no
// policy for it. The names of all who ask, and of most of what they ask about, are made from the seed.
func NewSafePlan(seed int64) (*Plan, error) {
	b := &Plan{Policy: (&policy.Policy{Seed: seed}).Index(), levels: []CertificationLevel{Safe}, concurrentCount: safeConcurrentCount}
	b.setQuestions(nil, b.safeQuestions())
	return b, b.seal()
}

// safeConcurrentCount fills two waves of reviews at the same time, half of them with questions that are asked twice. In
// each wave it leaves room for the requests that have to be refused.
const safeConcurrentCount = 4*streamCount - 12

// SafeProduct tries level safe by itself.
var SafeProduct = product.Product{Name: "certify safe", Command: "certify safe", New: func(fs *pflag.FlagSet) product.Flags {
	f := &safeFlags{}
	f.registerWebhook(fs)
	f.versions.register(fs)
	return f
}}

// safeFlags are the flags of certify safe.
type safeFlags struct {
	CommonFlags
	versions reviewVersions
}

// Plan makes the plan of the command line.
func (f *safeFlags) Plan(i *product.Invocation) (product.Plan, error) {
	challenge, err := f.prepareWebhook(i)
	if err != nil {
		return nil, err
	}
	plan, err := NewSafePlan(i.Seed)
	if err != nil {
		return nil, err
	}
	o := Options{Blame: true}
	if o.Plan, err = plan.ForVersions(f.versions...); err != nil {
		return nil, fmt.Errorf("--review-versions: %w", err)
	}
	if o.Webhook, err = f.webhook(i); err != nil {
		return nil, err
	}
	return o.trial(f.Subject, challenge, o.directCases()).WithChallenge(), nil
}
