package granular

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/dynamic"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/model"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
)

// noImplementation and what follows by kind of enforcer say what the results are not.
const noImplementation = "No API server implements KEP-3617. This judges "

var notices = map[string]string{
	Reference: "a reference enforcer before a real API server; it says nothing about any API server's conformance.",
	Policies:  "what ValidatingAdmissionPolicies of a real API server make of its excluded fields; what grants more than the ordinary permission no policy can do.",
	Webhook:   "somebody's enforcer of excluded fields, an admission webhook of a real API server.",
}

// Report is what a run has found.
type Report struct {
	reports.Record `json:",inline"`

	Enforcer   string    `json:"enforcer"` // Reference, Policies or the URL of a webhook
	Notice     string    `json:"notice"`
	Kubernetes string    `json:"kubernetes"`
	Took       string    `json:"took"`
	Results    []*Result `json:"results"`
}

// Section is the results of one section of the KEP, or all.
type Section struct {
	Name                                             string
	Scenarios, Attempts, Failed, Lost, NotApplicable int
}

// Sections counts the results by section, in alphabetical order; the last is all of them.
func (r *Report) Sections() []*Section {
	sections, seen := map[string]*Section{}, map[string]bool{}
	for _, result := range r.Results {
		for _, name := range []string{result.Section, "all"} {
			s := cmp.Or(sections[name], &Section{Name: name})
			sections[name] = s
			s.Attempts++
			for counted, is := range map[*int]bool{&s.Scenarios: !seen[name+" "+result.Scenario], &s.Failed: len(result.Problems) > 0, &s.Lost: result.Invalid != "", &s.NotApplicable: result.NotApplicable != ""} {
				if is {
					*counted++
				}
			}
			seen[name+" "+result.Scenario] = true
		}
	}
	// Capital letters, by which sections begin, are before "all".
	return slices.SortedFunc(maps.Values(sections), func(a, b *Section) int { return strings.Compare(a.Name, b.Name) })
}

// Folder is a report in a folder.
var Folder = filing.Kind{Name: "report of granular", Marker: "granular.json", Head: map[string]string{"notice": "", "kubernetes": "", "results": ""}, Files: append([]string{"evidence/*.json.gz"}, reports.BriefFiles...)}

// noDryRun is the problem of an attempt that the model has no say in.
const noDryRun = "an administrator's dry run made nothing, and the model knows of no permission"

// judge compares what was seen with what the scenario and the model expect.
func judge(kind string, a *Attempt, wanted *Request, o *observation) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch code := map[Outcome]int{Allowed: 200, Denied: 403, Rejected: 422}[a.Outcome]; {
	case o.Code != code:
		say("code %d, expected %d: %s", o.Code, code, cmp.Or(o.Message, "carried out"))
	case a.Outcome == Denied && kind == Reference:
		if want := denial(a, wanted, o); o.Message != want {
			say("message %q, expected %q", o.Message, want)
		}
	}
	if o.Result == nil && a.Outcome != Rejected {
		say(noDryRun)
	}
	changes := a.Outcome == Allowed && !wanted.DryRun
	if same := reflect.DeepEqual(o.Before, o.After); same == changes {
		say("the stored object: changed %t, expected %t", !same, changes)
	}
	if after, result := lasting(o.After), lasting(o.Result); changes && result != nil && after != nil && !reflect.DeepEqual(after, result) {
		say("the stored object is not what the request makes of it: %s", reports.Change(after, result))
	}
	if o.decision == nil {
		say("the enforcer did not decide, or more than once")
		return problems
	}
	asked := seq.Map(o.decision.Checks, func(c enforcer.Check) string { return map[bool]string{true: "yes ", false: "no "}[c.Allowed] + c.Verb })
	if kind != Webhook && !slices.Equal(asked, a.Checks) { // of other descriptions, the model has to do
		say("checks %q, expected %q", asked, a.Checks)
	}
	refused := func(c enforcer.Check) bool { return !c.Allowed && strings.Contains(o.Message, c.Verb) }
	if o.Code == http.StatusForbidden && !slices.ContainsFunc(o.decision.Checks, refused) && a.Reason == "" {
		say("message %q, expected a permission in it that the authorizer has refused", o.Message)
	}
	if o.predicted && o.decision.Fields >= 0 && o.decision.Fields < len(o.chains) {
		say("the enforcer says that %d fields change, the model that %d permissions are needed", o.decision.Fields, len(o.chains))
	}
	if most := differing(lasting(o.Before), lasting(o.Result)); o.Result != nil && o.decision.Fields > most {
		say("the enforcer says that %d fields change, and there are %d that differ", o.decision.Fields, most)
	}
	if kind == Reference {
		problems = append(problems, contradicted(a, o)...)
	}
	problems = append(problems, compareRecords(kind, wanted, o)...)
	return append(problems, compareModel(a, o)...)
}

// differing counts what differs between two values, and all in it: no fewer than the fields that change.
func differing(a, b any) (n int) {
	x, isMap := a.(map[string]any)
	y, isMap2 := b.(map[string]any)
	switch {
	case reflect.DeepEqual(a, b):
		return 0
	case isMap && isMap2:
		for name := range x {
			n += differing(x[name], y[name])
		}
		for name := range y {
			if _, both := x[name]; !both {
				n += differing(nil, y[name])
			}
		}
		return n + 1
	}
	for _, side := range []any{a, b} {
		switch v := side.(type) {
		case map[string]any:
			for _, field := range v {
				n += differing(nil, field)
			}
		case []any:
			for _, item := range v {
				n += differing(nil, item)
			}
		}
		n++
	}
	return n
}

// contradicted says where the reference contradicts its own checks, or the answer, about what it decided and why.
func contradicted(a *Attempt, o *observation) (problems []string) {
	d := o.decision
	first := slices.IndexFunc(d.Checks, func(c enforcer.Check) bool { return !strings.HasPrefix(c.Verb, permissions.GeneralVerb) })
	general := slices.ContainsFunc(d.Checks, func(c enforcer.Check) bool { return c.Verb == permissions.GeneralVerb && c.Allowed })
	if d.Granular != general || first >= 0 && d.Verb != d.Checks[first].Verb {
		problems = append(problems, fmt.Sprintf("the enforcer says %s, granular %t, and its checks do not", d.Verb, d.Granular))
	}
	switch m := d.Missing; {
	case m != nil && o.Code == http.StatusOK, m == nil && a.Outcome == Denied && d.Fields >= 0,
		m != nil && o.Code == http.StatusForbidden && !strings.Contains(o.Message, cmp.Or(m.Verb, m.Field)+map[bool]string{true: " "}[m.Verb != ""]):
		problems = append(problems, fmt.Sprintf("the enforcer says that %+v is missing, and answers %d: %s", m, o.Code, o.Message))
	}
	return problems
}

func lasting(object map[string]any) map[string]any {
	object = runtime.DeepCopyJSON(object)
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(object, "metadata", field)
	}
	return object
}

func (p place) objectName(r *Request) string {
	if r.Verb == "create" {
		return ""
	}
	return p.name
}

func denial(a *Attempt, wanted *Request, o *observation) string {
	return responsewriters.ForbiddenStatusError(authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: o.actor.user}, Verb: a.Missing, ResourceRequest: true, APIGroup: o.resource.Group,
		Resource: o.resource.Resource, Subresource: wanted.Subresource, Namespace: o.actor.namespace, Name: o.objectName(wanted),
	}, a.Reason).ErrStatus.Message
}

// compareRecords holds what the API server's authorizer was asked, and what the enforcer says of it, to what is right.
func compareRecords(kind string, wanted *Request, o *observation) (problems []string) {
	right := func(verb string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{
			Verb: verb, Group: o.resource.Group, Version: o.resource.Version, Resource: o.resource.Resource, Subresource: wanted.Subresource,
			Namespace: o.actor.namespace, Name: o.objectName(wanted),
		}
	}
	var claimed, seen []authorizationv1.ResourceAttributes
	for _, c := range o.decision.Checks {
		if kind == Reference && c.ResourceAttributes != right(c.Verb) {
			problems = append(problems, fmt.Sprintf("the enforcer says that it asked %v, expected %v", c.ResourceAttributes, right(c.Verb)))
		}
		if strings.HasPrefix(c.Verb, permissions.GeneralVerb) {
			claimed = append(claimed, right(c.Verb))
		}
	}
	for _, a := range o.asked {
		question := *a
		if kind != Reference && question.Version == "*" {
			question.Version = o.resource.Version // a policy asks about all
		}
		seen = append(seen, question)
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
	problems = seq.Map(model.Check(chains, asked, o.Code != http.StatusForbidden), func(wrong string) string { return "model: " + wrong })
	if allowed := model.Allowed(chains, a.holds); allowed != (a.Outcome == Allowed) {
		problems = append(problems, fmt.Sprintf("model: allowed %t, and the scenario says %s", allowed, a.Outcome))
	}
	return problems
}

// place is where the object of an attempt is: in the namespace of its actor, or that namespace itself.
type place struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

func placeOf(object map[string]any, version, namespace string) place {
	resource, _ := meta.UnsafeGuessKindToResource((&unstructured.Unstructured{Object: object}).GroupVersionKind())
	resource.Version = cmp.Or(version, resource.Version)
	if resource.GroupResource() == (schema.GroupResource{Resource: "namespaces"}) {
		return place{resource, "", namespace}
	}
	return place{resource, namespace, subject}
}

func (p place) of(client dynamic.Interface) dynamic.ResourceInterface {
	return client.Resource(p.resource).Namespace(p.namespace)
}

// named is an object of a scenario with its name and namespace.
func (p place) named(object any) (*unstructured.Unstructured, error) {
	// Through JSON: numbers get the types that client-go wants.
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw, &out.Object); err != nil {
		return nil, err
	}
	out.SetName(p.name)
	out.SetNamespace(p.namespace)
	return out, nil
}

func (b *Bench) restore(ctx context.Context, p place, object map[string]any) error {
	client := p.of(b.admin)
	first, err := p.named(object)
	if err != nil {
		return err
	}
	if p.namespace == "" {
		labels, err := json.Marshal([]any{map[string]any{"op": "add", "path": "/metadata/labels", "value": first.GetLabels()}})
		if err == nil {
			_, err = client.Patch(ctx, p.name, types.JSONPatchType, labels, metav1.PatchOptions{})
		}
		return err
	}
	_, err = client.Patch(ctx, p.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err == nil {
		err = client.Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	}
	if err := ignoreNotFound(err); err != nil || object == nil {
		return err
	}
	created, err := client.Create(ctx, first, metav1.CreateOptions{})
	if err != nil || first.Object["status"] == nil {
		return err
	}
	created.Object["status"] = first.Object["status"]
	_, err = client.UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}

func (p place) stored(ctx context.Context, client dynamic.Interface) (map[string]any, error) {
	o, err := p.of(client).Get(ctx, p.name, metav1.GetOptions{})
	if err != nil {
		return nil, utilerrors.FilterOut(err, apierrors.IsNotFound)
	}
	return o.Object, nil
}

// sending is a request, ready to be sent.
type sending struct {
	*Request
	place
	live map[string]any
}

var patchTypes = map[string]types.PatchType{
	"jsonPatch": types.JSONPatchType, "mergePatch": types.MergePatchType,
	"strategicMergePatch": types.StrategicMergePatchType, "apply": types.ApplyPatchType,
}

func (s *sending) body() (*unstructured.Unstructured, error) {
	switch s.Verb {
	case "create", "apply":
		return s.named(s.Change)
	case "update":
		live, err := json.Marshal(s.live)
		if err != nil {
			return nil, err
		}
		change, err := json.Marshal(s.Change)
		if err != nil {
			return nil, err
		}
		merged, err := jsonpatch.MergePatch(live, change)
		if err != nil {
			return nil, fmt.Errorf("merging the change: %w", err)
		}
		return s.named(json.RawMessage(merged))
	}
	return nil, nil
}

func (s *sending) send(ctx context.Context, from dynamic.Interface, dryRun bool) (*unstructured.Unstructured, error) {
	client := s.of(from)
	var dry, sub []string
	if dryRun {
		dry = []string{metav1.DryRunAll}
	}
	if s.Subresource != "" {
		sub = []string{s.Subresource}
	}
	body, err := s.body()
	if err != nil {
		return nil, err
	}
	switch s.Verb {
	case "create":
		return client.Create(ctx, body, metav1.CreateOptions{DryRun: dry}, sub...)
	case "update":
		return client.Update(ctx, body, metav1.UpdateOptions{DryRun: dry}, sub...)
	}
	data := s.Change
	o := metav1.PatchOptions{DryRun: dry}
	if s.Verb == "apply" {
		data, o.FieldManager, o.Force = body, "authzconf", new(true)
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	return client.Patch(ctx, s.name, patchTypes[s.Verb], raw, o, sub...)
}
