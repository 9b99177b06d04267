package granular

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/granular/enforcer"
	"github.com/authzconf/authzconf/granular/model"
	"github.com/authzconf/authzconf/granular/permissions"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/scenarios"
)

// Notice says what the results are not.
const Notice = "No API server implements KEP-3617. This judges a reference enforcer before a real API server; it says nothing about any API server's conformance."

// Report is what a run has found.
type Report struct {
	reports.Record `json:",inline"`

	Notice     string    `json:"notice"`
	Kubernetes string    `json:"kubernetes"`
	Took       string    `json:"took"`
	Results    []*Result `json:"results"`
}

// Section is the results of one section of the KEP, or all.
type Section struct {
	Name                              string
	Scenarios, Attempts, Failed, Lost int
}

// Sections counts the results by section, in alphabetical order; the last is all of them.
func (r *Report) Sections() (out []*Section) {
	all, seen := &Section{Name: "all"}, map[string]bool{}
	for _, result := range r.Results {
		i := slices.IndexFunc(out, func(s *Section) bool { return s.Name == result.Section })
		if i < 0 {
			i, out = len(out), append(out, &Section{Name: result.Section})
		}
		for _, s := range []*Section{out[i], all} {
			s.Attempts++
			if !seen[s.Name+" "+result.Scenario] {
				seen[s.Name+" "+result.Scenario] = true
				s.Scenarios++
			}
			if len(result.Problems) > 0 {
				s.Failed++
			}
			if result.Invalid != "" {
				s.Lost++
			}
		}
	}
	slices.SortFunc(out, func(a, b *Section) int { return strings.Compare(a.Name, b.Name) })
	return append(out, all)
}

// Folder is a report in a folder.
var Folder = filing.Kind{Name: "report of granular", Marker: "granular.json", Head: map[string]string{"notice": "", "kubernetes": "", "results": ""}, Files: []string{"evidence/*.json.gz", reports.SignatureFile}}

// judge compares what was seen with what the scenario and the model expect.
func judge(a *Attempt, wanted *Request, o *observation) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch code := map[Outcome]int{Allowed: 200, Denied: 403, Rejected: 422}[a.Outcome]; {
	case o.Code != code:
		say("code %d, expected %d: %s", o.Code, code, cmp.Or(o.Message, "carried out"))
	case a.Outcome == Denied:
		if want := denial(a, wanted, o); o.Message != want {
			say("message %q, expected %q", o.Message, want)
		}
	}
	changes := a.Outcome == Allowed && !wanted.DryRun
	if same := reflect.DeepEqual(o.Before, o.After); same == changes {
		say("the stored object: changed %t, expected %t", !same, changes)
	}
	if o.decision == nil {
		say("the enforcer did not decide, or more than once")
		return problems
	}
	asked := scenarios.Each(o.decision.Checks, func(c enforcer.Check) string { return map[bool]string{true: "yes ", false: "no "}[c.Allowed] + c.Verb })
	if !slices.Equal(asked, a.Checks) {
		say("checks %q, expected %q", asked, a.Checks)
	}
	problems = append(problems, compareRecords(wanted, o)...)
	return append(problems, compareModel(a, o)...)
}

// objectName is the name in the request's path.
func objectName(r *Request) string {
	if r.Verb == "create" {
		return ""
	}
	return subject
}

// denial is the message of an API server for a missing permission.
func denial(a *Attempt, wanted *Request, o *observation) string {
	resource, what := o.resource.GroupResource().String(), o.resource.Resource
	if wanted.Subresource != "" {
		what += "/" + wanted.Subresource
	}
	if name := objectName(wanted); name != "" {
		resource += fmt.Sprintf(" %q", name)
	}
	out := fmt.Sprintf("%s is forbidden: User %q cannot %s resource %q in API group %q in the namespace %q",
		resource, o.actor.user, a.Missing, what, o.resource.Group, o.actor.namespace)
	if a.Reason != "" {
		out += ": " + a.Reason
	}
	return out
}

// compareRecords compares what the API server's own authorizer was asked with what is
// right for the request, and with what the enforcer says that it asked.
func compareRecords(wanted *Request, o *observation) (problems []string) {
	type question struct{ verb, group, resource, subresource, namespace, name string }
	var claimed, seen []question
	for _, c := range o.decision.Checks {
		if strings.HasPrefix(c.Verb, permissions.GeneralVerb) {
			claimed = append(claimed, question{c.Verb, o.resource.Group, o.resource.Resource, wanted.Subresource, o.actor.namespace, objectName(wanted)})
		}
	}
	for _, a := range o.asked {
		seen = append(seen, question{a.Verb, a.Group, a.Resource, a.Subresource, a.Namespace, a.Name})
	}
	if !slices.Equal(claimed, seen) {
		problems = append(problems, fmt.Sprintf("the authorizer was asked %v, expected %v", seen, claimed))
	}
	return problems
}

// compareModel judges the checks by the rules of the model.
func compareModel(a *Attempt, o *observation) (problems []string) {
	ordinary := len(o.decision.Checks) > 0 && o.decision.Checks[0].Allowed && !strings.HasPrefix(o.decision.Checks[0].Verb, permissions.GeneralVerb)
	if !o.predicted || !ordinary && !o.decision.Granular {
		return nil
	}
	chains := o.chains
	if ordinary {
		chains = model.Excluded(chains)
	}
	var asked []model.Answer
	for _, c := range o.decision.Checks {
		if strings.HasPrefix(c.Verb, permissions.GeneralVerb+":") {
			asked = append(asked, model.Answer{Verb: c.Verb, Allowed: c.Allowed})
		}
	}
	for _, wrong := range model.Check(chains, asked, o.Code != http.StatusForbidden) {
		problems = append(problems, "model: "+wrong)
	}
	granted := func(verb string) bool { return slices.Contains(a.Grants, verb) }
	if allowed := model.Allowed(chains, granted); allowed != (a.Outcome == Allowed) {
		problems = append(problems, fmt.Sprintf("model: allowed %t, and the scenario says %s", allowed, a.Outcome))
	}
	return problems
}
