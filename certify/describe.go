package certify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/scenarios"
)

// describeSpec returns a review on one line. The wording of findings is part of recorded reports, which are judged
// again, so it must not change.
func describeSpec(s spec) string {
	if r := s.ResourceAttributes; r != nil {
		return fmt.Sprintf(
			"%+q %+q %+q %+q in %+q",
			cutWord(s.User),
			cutWord(r.Verb),
			cutWord(r.Group+"/"+scenarios.FullResource(r.Resource, r.Subresource)),
			cutWord(r.Name),
			cutWord(r.Namespace),
		)
	}
	if n := s.NonResourceAttributes; n != nil {
		return fmt.Sprintf("%+q %+q %+q", cutWord(s.User), cutWord(n.Verb), cutWord(n.Path))
	}
	return "a request that is not a review"
}

// describeQuestion returns a question with its answer: what was asked, expected and answered, and the grant that is
// nearest to it.
func (b *Plan) describeQuestion(v Question, a Answer) string {
	var out strings.Builder
	_, _ = fmt.Fprintf(&out, "%s: %s: expected %s, got %s", v.ID, describeSpec(v.Spec), v.expectedText(), describeAnswer(a))
	if a.WrongText != "" {
		_, _ = fmt.Fprintf(&out, "\n  it said: %+q", a.WrongText)
	}
	if g, ok := b.Policy.Nearest(v.Spec); ok && v.Form != literal {
		_, _ = fmt.Fprintf(&out, "\n  nearest grant: %s", describeGrant(g))
	}
	for _, reason := range slices.Concat(judge(v, a), advise(v, a), []string{v.Reason}) {
		if text := policy.Why(reason); text != "" {
			_, _ = fmt.Fprintf(&out, "\n  right: %s", text)
			break
		}
	}
	return out.String()
}

// expectedText returns in words what the right answer is.
func (v Question) expectedText() string {
	switch {
	case v.Expect == "":
		return "a refusal"
	case v.Level == Safe:
		return "not to be allowed"
	}
	return string(v.Expect)
}

// describeAnswer returns an answer in a few words: its decision, or its fault.
func describeAnswer(a Answer) string {
	if a.Fault != "" {
		if a.HTTP != 0 {
			return fmt.Sprintf("%s %d", a.Fault, a.HTTP)
		}
		return a.Fault
	}
	text := string(a.decision())
	for _, field := range []struct{ name, value string }{
		{"apiVersion", a.APIVersion},
		{"kind", a.Kind},
		{"fields", strings.Join(a.UnknownFields, ", ")},
	} {
		if field.value != "" {
			text += fmt.Sprintf(", %s %+q", field.name, field.value)
		}
	}
	return text
}

// describeGrant returns a grant on one line.
func describeGrant(g scenarios.Grant) string {
	who := fmt.Sprintf("user %+q", cutWord(g.Subject.User))
	if g.Subject.Group != "" {
		who = fmt.Sprintf("group %+q", cutWord(g.Subject.Group))
	}
	list := func(all []string) string {
		if len(all) > 3 {
			return fmt.Sprintf("%+q and %d more", all[:3], len(all)-3)
		}
		return fmt.Sprintf("%+q", all)
	}
	if len(g.NonResourceURLs) > 0 {
		return fmt.Sprintf("%s may %s paths %s", who, list(g.Verbs), list(g.NonResourceURLs))
	}
	text := fmt.Sprintf("%s may %s %s of API groups %s", who, list(g.Verbs), list(g.Resources), list(g.APIGroups))
	if len(g.Names) > 0 {
		text += " named " + list(g.Names)
	}
	if g.Namespace == "" {
		return text + " everywhere"
	}
	return text + fmt.Sprintf(" in namespace %q", g.Namespace)
}
