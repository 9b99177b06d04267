// Package cost measures what conditional authorization (KEP-5681) costs: the webhook calls of the KEP's own
// design, and those of an API server of today that over-grants and judges in admission. Its tests show what such a
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
func MeasureCost(ctx context.Context, o CostOptions) (_ *Cost, err error) {
	out := &Cost{Options: o, Evaluations: map[string]map[string][]float64{}, Latencies: map[string][]float64{}}
	if out.Calls, err = KEPCalls(ctx, o.Requests); err != nil {
		return nil, err
	}
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
	calls, err := cluster.TodayCalls(ctx, c.Options.Requests, cached)
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
	w, err := serveCounted(cluster.Authorizer)
	if err != nil {
		return err
	}
	defer func() { _ = w.close() }()
	variants := []variant{c.requests(cluster, variantPlain, plainUser), c.requests(cluster, variantToday, &User{Name: costUser}), c.policyVariant(cluster)}
	for _, e := range expressions {
		c.Evaluations[e.name] = map[string][]float64{}
		variants = append(variants, c.compiled(e.name, e.text), c.text(e.name, e.text), c.byWebhook(w, e.name, e.text))
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

// timed is the mean of a block of n runs, in microseconds, all of which are false.
func timed(n int, run func() (bool, error)) (float64, error) {
	began := time.Now()
	for range n {
		is, err := run()
		if err == nil && is {
			err = errors.New("a condition that is false evaluates to true")
		}
		if err != nil {
			return 0, err
		}
	}
	return float64(time.Since(began).Nanoseconds()) / float64(n) / 1e3, nil
}

// compiled evaluates a condition as an API server would that has it compiled.
func (c *Cost) compiled(name, text string) variant {
	return func(context.Context) error {
		data := vectors.ConditionData{Operation: "CREATE", Object: volume()}.Variables()
		us, err := timed(c.Options.Requests, func() (bool, error) { return reference.Holds(text, data) })
		c.add(name, variantCompiled, us)
		return err
	}
}

// text compiles it each time.
func (c *Cost) text(name, text string) variant {
	return func(context.Context) error {
		data := vectors.ConditionData{Operation: "CREATE", Object: volume()}.Variables()
		us, err := timed(c.Options.Requests, func() (bool, error) { return reference.HoldsFresh(text, data) })
		c.add(name, variantText, us)
		return err
	}
}

// byWebhook has the authorizer evaluate it.
func (c *Cost) byWebhook(w *counted, name, text string) variant {
	e := &Enforcer{access: w.access, conditions: w.second}
	chain := []vectors.ConditionSet{{AuthorizerName: reference.DefaultName, FailureMode: vectors.FailDeny, Conditions: []vectors.Condition{{ID: name, Effect: vectors.Allow, Type: reference.TypeCEL, Condition: text}}}}
	return func(ctx context.Context) error {
		object := volume()
		us, err := timed(c.Options.Requests, func() (bool, error) {
			got, err := e.ask(ctx, chain, vectors.ConditionData{Operation: "CREATE", Object: object})
			return got == vectors.Allow, err
		})
		c.add(name, variantWebhook, us)
		return err
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
