package scenarios

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// ReviewOf is an access review, as it was asked and decided, in the terms of an expectation.
func ReviewOf(spec authorizationv1.SubjectAccessReviewSpec, decision Decision) Review {
	r := Review{Decision: decision, Extra: UserOf(spec.User, spec.UID, spec.Groups, spec.Extra).Extra}
	if a := spec.NonResourceAttributes; a != nil {
		r.Verb, r.Path = a.Verb, a.Path
	}
	a := spec.ResourceAttributes
	if a == nil {
		return r
	}
	r.Verb, r.Group, r.Version, r.Resource, r.Subresource = a.Verb, a.Group, a.Version, a.Resource, a.Subresource
	r.Namespace, r.Name = a.Namespace, a.Name
	if s := a.FieldSelector; s != nil {
		r.FieldSelector = fieldSelector(s)
	}
	if s := a.LabelSelector; s != nil {
		r.LabelSelector = labelSelector(s)
	}
	return r
}

// UserOf converts the user of any API type; all write the values of extra as a named slice.
func UserOf[V ~[]string](name, uid string, groups []string, extra map[string]V) User {
	u := User{Name: name, UID: uid, Groups: groups}
	for k, values := range extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[k] = values
	}
	return u
}

// UserFrom is a user as authenticators have it.
func UserFrom(u user.Info) User { return UserOf(u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra()) }

func fieldSelector(s *authorizationv1.FieldSelectorAttributes) string {
	ops := map[metav1.FieldSelectorOperator]string{metav1.FieldSelectorOpIn: "=", metav1.FieldSelectorOpNotIn: "!="}
	var parts []string
	for _, r := range s.Requirements {
		parts = append(parts, r.Key+cmp.Or(ops[r.Operator], fmt.Sprintf(" %q ", r.Operator))+strings.Join(r.Values, "|"))
	}
	return selector(parts, s.RawSelector)
}

func labelSelector(s *authorizationv1.LabelSelectorAttributes) string {
	var parts []string
	for _, r := range s.Requirements {
		switch r.Operator {
		case metav1.LabelSelectorOpExists:
			parts = append(parts, r.Key)
		case metav1.LabelSelectorOpDoesNotExist:
			parts = append(parts, "!"+r.Key)
		case metav1.LabelSelectorOpIn:
			parts = append(parts, r.Key+" in ("+strings.Join(r.Values, ",")+")")
		case metav1.LabelSelectorOpNotIn:
			parts = append(parts, r.Key+" notin ("+strings.Join(r.Values, ",")+")")
		default:
			parts = append(parts, fmt.Sprintf("%s %q (%s)", r.Key, r.Operator, strings.Join(r.Values, ",")))
		}
	}
	return selector(parts, s.RawSelector)
}

// selector joins what a selector requires. One that requires nothing is not the same as none.
func selector(parts []string, raw string) string {
	if raw != "" {
		parts = append(parts, "raw:"+raw)
	}
	return cmp.Or(strings.Join(parts, ","), "{}")
}

// ImpersonationMode is the impersonation mode that a review's verb belongs to (associated-node, arbitrary-node,
// serviceaccount, user-info, legacy), as modeFromVerb of k8s.io/apiserver/pkg/endpoints/filters/impersonation has
// it; ok is false for an ordinary verb.
func ImpersonationMode(verb string) (mode string, ok bool) {
	kind, rest, constrained := strings.Cut(verb, ":")
	switch {
	case !constrained && kind == "impersonate":
		return legacyMode, true
	case constrained && kind == "impersonate-on":
		rest, _, _ = strings.Cut(rest, ":")
	case !constrained || kind != "impersonate":
		return "", false
	}
	if rest == legacyMode || rest == "" || !slices.Contains(modes, rest) {
		return "unknown", true
	}
	return rest, true
}

// List puts lines into one: "none" if there are none.
func List(lines []string) string {
	if len(lines) == 0 {
		return "none"
	}
	return strings.Join(lines, "; ")
}

// Printable is a text as JSON has it: U+FFFD stands for each byte that is not UTF-8.
func Printable(s string) string { return string([]rune(s)) }

// Render is the user on one line.
func (u User) Render() string {
	s := fmt.Sprintf("%q", Printable(u.Name))
	if u.UID != "" {
		s += fmt.Sprintf(" uid=%q", Printable(u.UID))
	}
	s += fmt.Sprintf(" groups=%q", printables(u.Groups))
	if len(u.Extra) > 0 {
		s += " extra=" + RenderExtra(u.Extra)
	}
	return s
}

// RenderExtra is the extra of a user on one line.
func RenderExtra(extra map[string][]string) string {
	parts := Each(slices.Sorted(maps.Keys(extra)), func(k string) string { return fmt.Sprintf("%s=%q", Printable(k), printables(extra[k])) })
	return "{" + strings.Join(parts, " ") + "}"
}

func printables(list []string) []string { return Each(list, Printable) }

// SumDeltas adds up equal series and sorts them; those of zero are left out.
func SumDeltas(in []MetricDelta) (out []MetricDelta) {
	for _, d := range in {
		same := func(o MetricDelta) bool { return o.Mode == d.Mode && o.Decision == d.Decision }
		if i := slices.IndexFunc(out, same); i >= 0 {
			out[i].Count += d.Count
			continue
		}
		out = append(out, d)
	}
	out = slices.DeleteFunc(out, func(d MetricDelta) bool { return d.Count == 0 })
	slices.SortFunc(out, func(a, b MetricDelta) int {
		return cmp.Or(cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.Decision, b.Decision))
	})
	return out
}

// RenderDeltas is a canonical text of increases by mode and decision.
func RenderDeltas(deltas []MetricDelta) string {
	parts := Each(SumDeltas(deltas), func(d MetricDelta) string {
		return fmt.Sprintf("%s %s ×%d", cmp.Or(d.Mode, `""`), d.Decision, d.Count)
	})
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// DecisionLabel is the label decision of the impersonation metrics.
func DecisionLabel(d Decision) string {
	if d == Allow {
		return "allowed"
	}
	return "denied"
}
