package today

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	webhook "github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// manyPolicies returns n policies. One of them is about costUser.
func manyPolicies(t testing.TB, n int) *reference.Snapshot {
	policies := make([]vectors.Policy, n)
	for i := range policies {
		user := fmt.Sprintf("user-%d", i)
		if i == n/2 {
			user = costUser
		}
		policies[i] = vectors.Policy{ID: fmt.Sprintf("p%d", i), Effect: vectors.Allow, Expression: fmt.Sprintf(
			`request.resource == "persistentvolumes" && request.verb == "create" && request.userInfo.username == %q && object.spec.storageClassName == "dev"`,
			user,
		)}
	}
	s, err := reference.NewSnapshot(policies)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// conditionsOnly is an admission webhook that evaluates the conditions of the first phase, and looks at no policy.
func conditionsOnly(t testing.TB, s *reference.Snapshot) http.Handler {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User:               costUser,
		Groups:             []string{Group},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Version: "v1", Resource: "persistentvolumes"},
	}
	set := vectors.ConditionSet{AuthorizerName: reference.DefaultName, FailureMode: vectors.FailDeny, Conditions: s.Decide(spec).Conditions}
	if len(set.Conditions) != 1 {
		t.Fatalf("there are %d conditions", len(set.Conditions))
	}
	return webhook.Posted(func(body []byte) ([]byte, error) {
		var in admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &in); err != nil || in.Request == nil {
			return nil, errors.New("the body is not an AdmissionReview with a request")
		}
		object, err := parseObject(in.Request.Object.Raw)
		if err != nil {
			return nil, err
		}
		known := vectors.ConditionData{Operation: string(in.Request.Operation), Object: object}.Variables()
		d, _, err := reference.EvaluateSet(set, func(c vectors.Condition) (bool, error) { return reference.Holds(c.Condition, known) })
		return json.Marshal(admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: err == nil && d == vectors.Allow}})
	})
}

// BenchmarkCostOfPolicies measures a create that a real API server lets through after an admission webhook has
// evaluated it. One webhook evaluates every policy a second time, as it must with an AdmissionReview. The other
// evaluates only the conditions that were left after the first phase (section "Why propagate the conditions with the
// request?": O(nk) against O(k)). Both webhooks get the same reviews. The order is random.
func BenchmarkCostOfPolicies(b *testing.B) {
	c := startForTest(b, StartOptions{Cached: true})
	var admits atomic.Pointer[http.Handler]
	use := func(h http.Handler) { admits.Store(&h) }
	var judged atomic.Int64
	c.handle("/policies", &judged, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { (*admits.Load()).ServeHTTP(w, req) }))
	c.Authorizer.Use(manyPolicies(b, 1))
	use(conditionsOnly(b, c.Authorizer.Snapshot()))
	if err := c.register(b.Context(), "ValidatingWebhookConfiguration", "/policies", "CREATE"); err != nil {
		b.Fatal(err)
	}
	u := &User{Name: costUser}
	err := until(b.Context(), "the admission webhook is called", func(ctx context.Context) (bool, error) {
		err := c.create(ctx, u)
		return judged.Load() > 0, err
	})
	if err != nil {
		b.Fatal(err)
	}
	type measured struct {
		n  int
		by string
	}
	all := []measured{}
	for _, n := range []int{1, 10, 100, 1000} {
		all = append(all, measured{n, "conditions"}, measured{n, "every-policy"})
	}
	for _, i := range rand.Perm(len(all)) {
		b.Run(fmt.Sprintf("policies=%d/by=%s", all[i].n, all[i].by), func(b *testing.B) {
			s := manyPolicies(b, all[i].n)
			c.Authorizer.Use(s)
			if use(Today{Authorizer: c.Authorizer}.Admission(nil)); all[i].by == "conditions" {
				use(conditionsOnly(b, s))
			}
			before, n := judged.Load(), int64(0)
			for b.Loop() {
				n++
				if err := c.create(b.Context(), u); err != nil {
					b.Fatal(err)
				}
			}
			if got := judged.Load() - before; got != n {
				b.Errorf("%d creates are judged %d times", n, got)
			}
		})
	}
}
