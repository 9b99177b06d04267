package today

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// costUser is the user whose requests are counted and measured.
const costUser = "cost"

// expressions are the expressions that are measured. volume satisfies none of them, because the API server records the
// time of a policy only if the policy has failed.
var expressions = []struct{ name, text string }{
	{"storage-class", `object.spec.storageClassName == "gold"`},
	{"all-finalizers", `object.metadata.finalizers.all(f, f != "example.com/9")`},
}

// volume returns the PersistentVolume that is created. It has ten finalizers.
func volume() map[string]any {
	finalizers := make([]any, 10)
	for i := range finalizers {
		finalizers[i] = fmt.Sprintf("example.com/%d", i)
	}
	return map[string]any{
		"apiVersion": "v1",
		"kind":       "PersistentVolume",
		"metadata":   map[string]any{"generateName": "cost-", "finalizers": finalizers},
		"spec": map[string]any{
			"storageClassName": "dev",
			"capacity":         map[string]any{"storage": "1Gi"},
			"accessModes":      []any{"ReadWriteOnce"},
			"hostPath":         map[string]any{"path": "/tmp"},
		},
	}
}

// overGranting starts a cluster whose authorizer lets costUser create volumes of one storage class only, as in the KEP.
// The authorizer over-grants, and an admission webhook checks the storage class.
func overGranting(t testing.TB, cached bool) *Cluster {
	c := startForTest(t, StartOptions{Cached: cached})
	s, err := reference.NewSnapshot([]vectors.Policy{{
		ID: "cost", Effect: vectors.Allow,
		Expression: fmt.Sprintf(`request.userInfo.username == %q && request.resource == "persistentvolumes" && request.verb == "create" && object.spec.storageClassName == "dev"`, costUser),
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.Authorizer.Use(s)
	if err := c.register(t.Context(), "ValidatingWebhookConfiguration", admitPath, "CREATE"); err != nil {
		t.Fatal(err)
	}
	err = until(t.Context(), "the admission webhook is called", func(ctx context.Context) (bool, error) {
		before := c.Judged.Load()
		err := c.create(ctx, &User{Name: costUser})
		return c.Judged.Load() > before, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// create sends one request.
func (c *Cluster) create(ctx context.Context, u *User) error {
	resp, err := c.Send(ctx, u, http.MethodPost, "/api/v1/persistentvolumes?dryRun=All", "", volume())
	if err == nil {
		err = resp.expect(http.StatusCreated)
	}
	if err != nil {
		return fmt.Errorf("creating a volume as %s: %w", u.Name, err)
	}
	return nil
}

// TestCalls counts the webhook calls of one request. There is one review unless the answer is cached, and admission
// judges every request again.
func TestCalls(t *testing.T) {
	for cached, reviews := range map[bool]int64{false: 10, true: 0} {
		c := overGranting(t, cached)
		reviewed, judged := c.Reviewed.Load(), c.Judged.Load()
		for range 10 {
			if err := c.create(t.Context(), &User{Name: costUser}); err != nil {
				t.Fatal(err)
			}
		}
		if r, j := c.Reviewed.Load()-reviewed, c.Judged.Load()-judged; r != reviews || j != 10 {
			t.Errorf("answers cached: %t: 10 requests cost %d reviews and %d admission reviews, want %d and 10", cached, r, j, reviews)
		}
	}
}

// plainUser and policyUser are members of system:masters, so that no authorizer is asked about them. The policies match
// only policyUser.
var (
	plainUser  = &User{Name: "plain", Groups: []string{"system:masters"}, Outside: true}
	policyUser = &User{Name: "policy", Groups: []string{"system:masters"}, Outside: true}
)

// BenchmarkCost measures a create that is judged in three ways. It also measures conditions, and the same expressions
// in ValidatingAdmissionPolicies, whose time is a metric of the API server. The order is random.
func BenchmarkCost(b *testing.B) {
	c := overGranting(b, true)
	c.makePolicies(b)
	w := serveEvaluator(b, c.Authorizer)
	type measured struct {
		name string
		run  func(b *testing.B)
	}
	requests := func(u *User) func(*testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				if err := c.create(b.Context(), u); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	all := []measured{
		{"of=create/by=nothing", requests(plainUser)},
		{"of=create/by=policy", requests(policyUser)},
		{"of=create/by=webhook", requests(&User{Name: costUser})},
	}
	data := vectors.ConditionData{Operation: "CREATE", Object: volume()}
	known := data.Variables()
	for _, e := range expressions {
		fresh := 0
		condition := func(holds func(ctx context.Context) (bool, error)) func(*testing.B) {
			return func(b *testing.B) {
				for b.Loop() {
					if is, err := holds(b.Context()); is || err != nil {
						b.Fatalf("a condition that is false evaluates to %t, %v", is, err)
					}
				}
			}
		}
		at := "of=" + e.name + "/by="
		all = append(all,
			measured{at + "policy", c.policy(e.name)},
			measured{at + "compiled-before", condition(func(context.Context) (bool, error) { return reference.Holds(e.text, known) })},
			measured{at + "compiled-each-time", condition(func(context.Context) (bool, error) {
				fresh++ // the comment makes a new condition, which is not cached yet
				return reference.Holds(fmt.Sprintf("%s // %d", e.text, fresh), known)
			})},
			measured{at + "webhook", condition(func(ctx context.Context) (bool, error) { return w.allows(ctx, e.name, e.text, data) })})
	}
	for _, i := range rand.Perm(len(all)) {
		b.Run(all[i].name, all[i].run)
	}
}

// policy returns a benchmark of a policy, which reports the time that the API server has measured.
func (c *Cluster) policy(name string) func(*testing.B) {
	return func(b *testing.B) {
		before := c.checks(b)[name]
		for b.Loop() {
			if err := c.create(b.Context(), policyUser); err != nil {
				b.Fatal(err)
			}
		}
		after := c.checks(b)[name]
		n := after.GetSampleCount() - before.GetSampleCount()
		if n < uint64(b.N) {
			b.Fatalf("the policy %s was checked %d times for %d requests", name, n, b.N)
		}
		b.ReportMetric((after.GetSampleSum()-before.GetSampleSum())/float64(n)*1e9, "ns/op")
	}
}

// checks reads apiserver_validating_admission_policy_check_duration_seconds by policy
// (pkg/admission/plugin/policy/validating/metrics): the time in which the expression of a policy ran, as
// pkg/admission/plugin/cel measures it. dispatcher.go there records only failed checks. So all the measured policies
// fail, and their failures are only written to the audit log.
func (c *Cluster) checks(t testing.TB) map[string]*dto.Histogram {
	const name = "apiserver_validating_admission_policy_check_duration_seconds"
	families, err := c.Scrape(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*dto.Histogram{}
	for _, m := range families[name].GetMetric() {
		i := slices.IndexFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "policy" })
		if i >= 0 {
			out[m.GetLabel()[i].GetValue()] = m.GetHistogram()
		}
	}
	return out
}

// makePolicies creates a ValidatingAdmissionPolicy for each expression, and waits until they are in force.
func (c *Cluster) makePolicies(t testing.TB) {
	for _, e := range expressions {
		rule := map[string]any{
			"apiGroups":   []string{""},
			"apiVersions": []string{"v1"},
			"resources":   []string{"persistentvolumes"},
			"operations":  []string{"CREATE"},
		}
		for kind, spec := range map[string]map[string]any{
			"ValidatingAdmissionPolicy": {
				"failurePolicy": "Fail", "matchConstraints": map[string]any{"resourceRules": []any{rule}},
				"matchConditions": []any{map[string]any{"name": "user", "expression": fmt.Sprintf("request.userInfo.username == %q", policyUser.Name)}},
				"validations":     []any{map[string]any{"expression": e.text}},
			},
			"ValidatingAdmissionPolicyBinding": {"policyName": e.name, "validationActions": []string{"Audit"}},
		} {
			path := webhooksPath + map[string]string{"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings"}[kind]
			err := c.Make(
				t.Context(),
				Made{
					path,
					map[string]any{
						"apiVersion": "admissionregistration.k8s.io/v1",
						"kind":       kind,
						"metadata":   map[string]any{"name": e.name},
						"spec":       spec,
					},
				},
			)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	err := until(t.Context(), "the policies are checked", func(ctx context.Context) (bool, error) {
		if err := c.create(ctx, policyUser); err != nil {
			return false, err
		}
		return len(c.checks(t)) == len(expressions), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
