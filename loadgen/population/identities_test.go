package population

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/scenarios"
)

// deputies are two agents who act for users, with their block as a server without mistakes would see it.
type deputies struct {
	history *History
	variant profile.Variant
	log     []run.Request
	own     map[string]run.OwnReview
}

// whoamiKind is the number of the kind of request that asks who one is.
const whoamiKind = 4

func newDeputies(t *testing.T) *deputies {
	t.Helper()
	v, err := profile.VariantNamed("deputy")
	if err != nil {
		t.Fatal(err)
	}
	d := &deputies{history: history(t, nodes(20, profile.Shared, "deputy")), variant: v, own: map[string]run.OwnReview{}}
	for a := range int32(2) {
		at := time.Duration(a) * 10 * ms
		d.log = append(d.log,
			run.Request{Agent: a, From: at, To: at + 5*ms},
			run.Request{
				Agent: a,
				Kind:  whoamiKind,
				Turn:  1,
				From:  at + time.Second,
				To:    at + time.Second + 5*ms,
				Said:  identityText(d.user(int(a))),
			},
		)
		d.addOwn(t, d.user(int(a)), "list", nodeName(int(a)), at+2*ms)
		d.addOwn(t, d.user(int(a)), "create", "", at+time.Second+2*ms)
	}
	return d
}

// user returns whom an agent's user becomes.
func (d *deputies) user(a int) scenarios.User {
	imp := userOf(d.variant, a)
	return scenarios.User{Name: imp.User, Groups: append(imp.Groups, "system:authenticated"), Extra: imp.Extra}
}

// addOwn adds the review by which a request itself was authorized.
func (d *deputies) addOwn(t *testing.T, u scenarios.User, verb, node string, at time.Duration) {
	t.Helper()
	spec := authorizationv1.SubjectAccessReviewSpec{User: u.Name, Groups: u.Groups, Extra: map[string]authorizationv1.ExtraValue{}}
	for key, values := range u.Extra {
		spec.Extra[key] = values
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb:     verb,
		Group:    "authentication.k8s.io",
		Version:  "v1",
		Resource: "selfsubjectreviews",
	}
	if node != "" {
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "pods"}
		spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{
			Requirements: scenarios.FieldRequirements(fields.OneTermEqualSelector("spec.nodeName", node).Requirements()),
		}
	}
	text, err := json.Marshal(authorizationv1.SubjectAccessReview{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	seen := d.own[string(text)]
	seen.Count++
	seen.First = at
	d.own[string(text)] = seen
}

func (d *deputies) compare(t *testing.T) *run.Identities {
	t.Helper()
	if _, err := d.history.Predict(d.variant, time.Unix(0, 0), d.log); err != nil {
		t.Fatal(err)
	}
	got, err := d.history.CompareIdentities(d.variant, d.log, d.own, 0)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestCompareIdentities checks that one identity that differs from the wanted one is found, in an answer or in a
// review, and that both requests are named.
func TestCompareIdentities(t *testing.T) {
	if got := newDeputies(t).compare(t); got == nil || got.Answers != 2 || got.Reviews != 4 || got.WrongCount != 0 {
		t.Errorf("a server without faults: %+v", got)
	}
	answered := newDeputies(t)
	for i := range answered.log {
		if r := &answered.log[i]; r.Agent == 1 && r.Said != "" {
			r.Said = identityText(answered.user(0))
		}
	}
	reviewed := newDeputies(t)
	reviewed.addOwn(t, reviewed.user(0), "list", nodeName(1), 12*ms)
	twice := newDeputies(t)
	twice.addOwn(t, twice.user(0), "list", nodeName(0), 2*ms)
	regrouped := newDeputies(t)
	other := regrouped.user(1)
	other.Groups = []string{"system:masters", "system:authenticated"}
	regrouped.addOwn(t, other, "list", nodeName(1), 12*ms)
	for name, c := range map[string]struct {
		d    *deputies
		want []string
	}{
		"an answer":      {answered, []string{"agent-000001", "user-000001", `"name":"user-000000"`, "the last one for that user is", "agent-000000"}},
		"a review":       {reviewed, []string{"as user-000000", "no agent asked for", "Under way was", "agent-000001", "agent-000000"}},
		"a review twice": {twice, []string{"as user-000000", "2 times, and at most 1"}},
		"other groups":   {regrouped, []string{"system:masters", "no agent asked for"}},
	} {
		got := c.d.compare(t)
		if got.WrongCount != 1 || len(got.Wrong) != 1 {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(got.Wrong[0], want) {
				t.Errorf("%s: %q is not in %q", name, want, got.Wrong[0])
			}
		}
	}
}
