package scenarios

import "slices"

// PolicyRule is what the scripted webhook of a chain answers to the reviews that For covers. The first rule that
// covers a review decides; a review that none covers gets no opinion.
type PolicyRule struct {
	// For says which reviews: in the form of a grant, with its subject.
	For Grant `json:"for" yaml:"for"`
	// Answer is how the webhook behaves.
	Answer PolicyAnswer `json:"answer" yaml:"answer"`
	// Reason is the text that goes with it.
	Reason string `json:"reason,omitempty" yaml:"reason,omitempty"`
}

// PolicyAnswer is how the scripted webhook behaves.
type PolicyAnswer string

const (
	// AnswerAllow, AnswerDeny and AnswerNoOpinion are well-formed reviews.
	AnswerAllow     PolicyAnswer = "allow"
	AnswerDeny      PolicyAnswer = "deny"
	AnswerNoOpinion PolicyAnswer = "noOpinion"
	// AnswerBoth is a review that allows and denies.
	AnswerBoth PolicyAnswer = "both"
	// AnswerError is HTTP 500 with the reason as body.
	AnswerError PolicyAnswer = "error"
	// AnswerForbidden is HTTP 403 with the reason as body.
	AnswerForbidden PolicyAnswer = "forbidden"
	// AnswerGarbage is HTTP 200 with HTML.
	AnswerGarbage PolicyAnswer = "garbage"
	// AnswerSilence is nothing until the API server gives up.
	AnswerSilence PolicyAnswer = "silence"
)

// policy checks the rules of the scripted webhook.
func (c *checker) policy() {
	if len(c.s.Policy) > 0 && c.s.Requires.Chain == "" {
		c.fail(at("policy"), "policy is given without requires.chain (expected a chain with a webhook)")
	}
	for i, r := range c.s.Policy {
		path := at("policy", i)
		c.missing(extend(path, "answer"), r.Answer == "", "one of allow, deny, noOpinion, both, error, forbidden, garbage, silence")
		enum(c, extend(path, "answer"), r.Answer, AnswerAllow, AnswerDeny, AnswerNoOpinion, AnswerBoth, AnswerError, AnswerForbidden, AnswerGarbage, AnswerSilence)
		if r.For.ID != "" {
			c.fail(extend(path, "for"), "a rule has no id (expected it in grants only)")
		}
		c.grant(r.For, extend(path, "for"))
	}
}

// samePolicy says whether the webhook answers both scenarios alike.
func samePolicy(a, b *Scenario) bool {
	return a.Requires.Chain == b.Requires.Chain && slices.EqualFunc(a.Policy, b.Policy, func(x, y PolicyRule) bool {
		return x.Answer == y.Answer && x.For.Subject == y.For.Subject && slices.Equal(x.For.Verbs, y.For.Verbs) && slices.Equal(x.For.Resources, y.For.Resources) &&
			slices.Equal(x.For.APIGroups, y.For.APIGroups) && slices.Equal(x.For.Names, y.For.Names) && x.For.Namespace == y.For.Namespace
	})
}

// chainFile is where the fixtures folder says what a chain is.
func chainFile(name string) string { return "chains/" + name + ".yaml" }

// chains are those that the scenario meets, each once, the first one first.
func (s *Scenario) chains() []string {
	var names []string
	if s.Requires.Chain != "" {
		names = append(names, s.Requires.Chain)
	}
	for _, st := range s.Steps {
		if st.Reload != "" && !slices.Contains(names, st.Reload) {
			names = append(names, st.Reload)
		}
	}
	return names
}

// FixtureFiles are all files of the fixtures folder that the scenario depends on: its fixtures and its chain.
func (s *Scenario) FixtureFiles() []string {
	files := slices.Clone(s.Fixtures)
	for _, chain := range s.chains() {
		files = append(files, chainFile(chain))
	}
	return files
}
