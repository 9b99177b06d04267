// Package cost measures what conditional authorization (KEP-5681) costs: the webhook calls of an API server of today
// that over-grants and judges in admission, and how long conditions take to evaluate. Its tests show what such a
// server enforces (cases/), and what it makes of conditional answers.
package cost

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conditional/reference"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// CostOptions say how much is measured.
type CostOptions struct {
	// Rounds are the blocks of each variant, Requests those of a block.
	Rounds, Requests int
	// Seed decides the order of the variants in each round.
	Seed int64
	// Binaries finds or builds the programs.
	Binaries *local.Binaries
}

// costUser is who sends what is counted and measured.
const costUser = "cost"

// allowed is the KEP's condition of a PersistentVolume, which volume satisfies.
const allowed = `object.spec.storageClassName == "dev"`

// expressions are those that are measured. volume satisfies none of them: the API server observes how long a
// policy took only if it has failed.
var expressions = []struct{ name, text string }{
	{"storage-class", `object.spec.storageClassName == "gold"`},
	{"all-finalizers", `object.metadata.finalizers.all(f, f != "example.com/9")`},
}

// volume is what is created, with ten finalizers.
func volume() map[string]any {
	finalizers := make([]any, 10)
	for i := range finalizers {
		finalizers[i] = fmt.Sprintf("example.com/%d", i)
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume", "metadata": map[string]any{"generateName": "cost-", "finalizers": finalizers},
		"spec": map[string]any{"storageClassName": "dev", "capacity": map[string]any{"storage": "1Gi"}, "accessModes": []any{"ReadWriteOnce"}, "hostPath": map[string]any{"path": "/tmp"}},
	}
}

const volumesPath = "/api/v1/persistentvolumes?dryRun=All"

// costPolicies let the user create such volumes.
func costPolicies() (*reference.Snapshot, error) {
	return reference.NewSnapshot([]vectors.Policy{{
		ID: "cost", Effect: vectors.Allow,
		Expression: fmt.Sprintf(`request.userInfo.username == %q && request.resource == "persistentvolumes" && request.verb == "create" && %s`, costUser, allowed),
	}})
}

// Calls are the webhooks that a real API server calls for one request, on average.
type Calls struct {
	// Cached says whether it remembers the authorizer's answers.
	Cached  bool    `json:"cached"`
	Reviews float64 `json:"reviews"`
	Judged  float64 `json:"judged"`
}

// Agrees says whether the calls are those of the design: one review unless the answer is remembered, and admission
// judges every request again.
func (c Calls) Agrees() bool {
	return c.Reviews == map[bool]float64{false: 1}[c.Cached] && c.Judged == 1
}

// Agrees says whether all calls do.
func (c *Cost) Agrees() bool {
	return !slices.ContainsFunc(c.Calls, func(row Calls) bool { return !row.Agrees() })
}

// count counts them by n requests behind a first one.
func (c *Cluster) count(ctx context.Context, n int, cached bool) (Calls, error) {
	var reviews, judged int64
	for i := range n + 1 {
		if i == 1 {
			reviews, judged = c.Reviewed.Load(), c.Judged.Load()
		}
		if _, err := c.create(ctx, &User{Name: costUser}); err != nil {
			return Calls{}, err
		}
	}
	per := func(count int64) float64 { return float64(count) / float64(n) }
	return Calls{cached, per(c.Reviewed.Load() - reviews), per(c.Judged.Load() - judged)}, nil
}

// Cost is what was measured.
type Cost struct {
	Options CostOptions `json:"-"`
	Calls   []Calls     `json:"calls"`
	// Evaluations have, by expression and variant, the mean of each block in microseconds; Latencies, by variant,
	// the median of each block in milliseconds.
	Evaluations map[string]map[string][]float64 `json:"evaluations"`
	Latencies   map[string][]float64            `json:"latencies"`
}

// The variants of the evaluation: the API server's own metric of a ValidatingAdmissionPolicy's expression, the
// same text as a condition that is compiled already, as one that is not, and by the webhook.
const (
	variantVAP      = "ValidatingAdmissionPolicy"
	variantCompiled = "condition, compiled before"
	variantText     = "condition, compiled each time"
	variantWebhook  = "condition, by the webhook"
)

// The variants of the requests.
const (
	variantPlain = "no policy"
	variantToday = "over-grant and admission webhook"
)

// MeasureCost measures everything on one control plane.
func MeasureCost(ctx context.Context, o CostOptions) (*Cost, error) {
	out := &Cost{Options: o, Evaluations: map[string]map[string][]float64{}, Latencies: map[string][]float64{}}
	for _, cached := range []bool{false, true} {
		if err := out.onServer(ctx, cached); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// onServer counts the calls of a server, and of the one that remembers answers, the usual case, measures too.
func (c *Cost) onServer(ctx context.Context, cached bool) (err error) {
	cluster, err := Start(ctx, StartOptions{Binaries: c.Options.Binaries, Cached: cached})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	s, err := costPolicies()
	if err != nil {
		return err
	}
	cluster.Authorizer.Use(s)
	if err := cluster.register(ctx, "ValidatingWebhookConfiguration", reference.AdmitPath, "CREATE"); err != nil {
		return err
	}
	if err := until(ctx, "the admission webhook is called", func(ctx context.Context) (bool, error) {
		before := cluster.Judged.Load()
		_, err := cluster.create(ctx, &User{Name: costUser})
		return cluster.Judged.Load() > before, err
	}); err != nil {
		return err
	}
	calls, err := cluster.count(ctx, c.Options.Requests, cached)
	if err != nil {
		return err
	}
	c.Calls = append(c.Calls, calls)
	if !cached {
		return nil
	}
	return c.measure(ctx, cluster)
}

// variant is one thing that is measured, a block at a time.
type variant func(ctx context.Context) error

// measure runs the blocks of all variants, interleaved, in another order each round.
func (c *Cost) measure(ctx context.Context, cluster *Cluster) error {
	if err := cluster.policies(ctx); err != nil {
		return err
	}
	w, err := serveEvaluator(cluster.Authorizer)
	if err != nil {
		return err
	}
	defer func() { _ = w.close() }()
	variants := []variant{c.requests(cluster, variantPlain, plainUser), c.requests(cluster, variantToday, &User{Name: costUser}), c.policyVariant(cluster)}
	for _, e := range expressions {
		c.Evaluations[e.name] = map[string][]float64{}
		data := vectors.ConditionData{Operation: "CREATE", Object: volume()}
		known := data.Variables()
		variants = append(variants,
			c.condition(e.name, variantCompiled, func(context.Context) (bool, error) { return reference.Holds(e.text, known) }),
			c.condition(e.name, variantText, func(context.Context) (bool, error) { return reference.HoldsFresh(e.text, known) }),
			c.condition(e.name, variantWebhook, func(ctx context.Context) (bool, error) { return w.allows(ctx, e.name, e.text, data) }))
	}
	r := rand.New(rand.NewPCG(uint64(c.Options.Seed), 0x636f7374))
	for range c.Options.Rounds + 1 { // the first round warms up
		for _, i := range r.Perm(len(variants)) {
			if err := variants[i](ctx); err != nil {
				return err
			}
		}
	}
	for _, blocks := range c.Evaluations {
		for name := range blocks {
			blocks[name] = blocks[name][1:]
		}
	}
	for name := range c.Latencies {
		c.Latencies[name] = c.Latencies[name][1:]
	}
	return nil
}

// plainUser and policyUser are authorized by nobody: members of system:masters. The policies match the second one
// only.
var (
	plainUser  = &User{Name: "plain", Groups: []string{"system:masters"}, Outside: true}
	policyUser = &User{Name: "policy", Groups: []string{"system:masters"}, Outside: true}
)

// create sends one request.
func (c *Cluster) create(ctx context.Context, u *User) (time.Duration, error) {
	client, err := c.client(u)
	if err != nil {
		return 0, err
	}
	body := volume()
	began := time.Now()
	resp, err := c.send(ctx, client, http.MethodPost, volumesPath, "", body)
	took := time.Since(began)
	if err == nil {
		err = resp.expect(http.StatusCreated)
	}
	if err != nil {
		err = fmt.Errorf("creating a volume as %s: %w", u.Name, err)
	}
	return took, err
}

// requests is a block of requests to the API server: its median.
func (c *Cost) requests(cluster *Cluster, name string, u *User) variant {
	return func(ctx context.Context) error {
		took := make([]float64, c.Options.Requests)
		for i := range took {
			d, err := cluster.create(ctx, u)
			if err != nil {
				return err
			}
			took[i] = float64(d.Nanoseconds()) / 1e6
		}
		slices.Sort(took)
		c.Latencies[name] = append(c.Latencies[name], took[len(took)/2])
		return nil
	}
}

// policyVariant is a block of requests that ValidatingAdmissionPolicies judge, and what the API server's metric
// says of each policy.
func (c *Cost) policyVariant(cluster *Cluster) variant {
	block := c.requests(cluster, variantVAP, policyUser)
	return func(ctx context.Context) error {
		before, err := cluster.checks(ctx)
		if err != nil {
			return err
		}
		if err := block(ctx); err != nil {
			return err
		}
		after, err := cluster.checks(ctx)
		if err != nil {
			return err
		}
		for _, e := range expressions {
			n := after[e.name].count - before[e.name].count
			if n != uint64(c.Options.Requests) {
				return fmt.Errorf("the policy %s was checked %d times for %d requests", e.name, n, c.Options.Requests)
			}
			c.add(e.name, variantVAP, (after[e.name].seconds-before[e.name].seconds)/float64(n)*1e6)
		}
		return nil
	}
}

func (c *Cost) add(expression, name string, microseconds float64) {
	c.Evaluations[expression][name] = append(c.Evaluations[expression][name], microseconds)
}

// condition is a block of evaluations of a condition, all of which are false: their mean.
func (c *Cost) condition(expression, name string, evaluate func(context.Context) (bool, error)) variant {
	return func(ctx context.Context) error {
		began := time.Now()
		for range c.Options.Requests {
			is, err := evaluate(ctx)
			if err == nil && is {
				err = errors.New("a condition that is false evaluates to true")
			}
			if err != nil {
				return err
			}
		}
		c.add(expression, name, float64(time.Since(began).Nanoseconds())/float64(c.Options.Requests)/1e3)
		return nil
	}
}

// checked is what the API server has measured of a policy.
type checked struct {
	seconds float64
	count   uint64
}

// checks reads apiserver_validating_admission_policy_check_duration_seconds
// (pkg/admission/plugin/policy/validating/metrics): how long the expression of a policy ran, as
// pkg/admission/plugin/cel measures it. dispatcher.go there observes only what failed, so the policies are ones
// that fail, and only for the audit log.
func (c *Cluster) checks(ctx context.Context) (map[string]checked, error) {
	const name = "apiserver_validating_admission_policy_check_duration_seconds"
	families, err := c.Scrape(ctx, name)
	if err != nil {
		return nil, err
	}
	out := map[string]checked{}
	if f := families[name]; f != nil {
		for _, m := range f.GetMetric() {
			i := slices.IndexFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "policy" })
			if i >= 0 {
				out[m.GetLabel()[i].GetValue()] = checked{m.GetHistogram().GetSampleSum(), m.GetHistogram().GetSampleCount()}
			}
		}
	}
	return out, nil
}

// policies makes a ValidatingAdmissionPolicy of each expression, and waits until they are in force.
func (c *Cluster) policies(ctx context.Context) error {
	for _, e := range expressions {
		rule := map[string]any{"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"persistentvolumes"}, "operations": []string{"CREATE"}}
		for kind, spec := range map[string]map[string]any{
			"ValidatingAdmissionPolicy": {
				"failurePolicy": "Fail", "matchConstraints": map[string]any{"resourceRules": []any{rule}},
				"matchConditions": []any{map[string]any{"name": "user", "expression": fmt.Sprintf("request.userInfo.username == %q", policyUser.Name)}},
				"validations":     []any{map[string]any{"expression": e.text}},
			},
			"ValidatingAdmissionPolicyBinding": {"policyName": e.name, "validationActions": []string{"Audit"}},
		} {
			path := webhooksPath + map[string]string{"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings"}[kind]
			if err := c.Make(ctx, Made{path, map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": e.name}, "spec": spec}}); err != nil {
				return err
			}
		}
	}
	return until(ctx, "the policies are checked", func(ctx context.Context) (bool, error) {
		if _, err := c.create(ctx, policyUser); err != nil {
			return false, err
		}
		seen, err := c.checks(ctx)
		return len(seen) == len(expressions), err
	})
}
