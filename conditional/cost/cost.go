package cost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/authzconf/authzconf/clusters/local"
	reference "github.com/authzconf/authzconf/conditional/reference"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// CostOptions say how much is measured.
type CostOptions struct {
	// Rounds are the blocks of each arm, Requests those of a block.
	Rounds, Requests int
	// Seed decides the order of the arms in each round.
	Seed int64
	// Binaries finds or builds the programs.
	Binaries *local.Binaries
}

// Cost is what was measured.
type Cost struct {
	Options CostOptions `json:"-"`
	Calls   []Calls     `json:"calls"`
	// Evaluations have, by expression and arm, the mean of each block in
	// microseconds; Latencies, by arm, the median of each block in milliseconds.
	Evaluations map[string]map[string][]float64 `json:"evaluations"`
	Latencies   map[string][]float64            `json:"latencies"`
}

// The arms of the evaluation: the API server's own metric of a
// ValidatingAdmissionPolicy's expression, the same text as a condition that is
// compiled already, as one that is not, and by the webhook.
const (
	armVAP      = "ValidatingAdmissionPolicy"
	armCompiled = "condition, compiled before"
	armText     = "condition, compiled each time"
	armWebhook  = "condition, by the webhook"
)

// The arms of the requests.
const (
	armPlain = "no policy"
	armToday = "over-grant and admission webhook"
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

// onServer counts the calls of a server, and of the one that remembers answers, the
// usual case, measures too.
func (c *Cost) onServer(ctx context.Context, cached bool) (err error) {
	cluster, err := Start(ctx, StartOptions{Options: local.Options{Binaries: c.Options.Binaries}, Cached: cached})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	s, err := costPolicies()
	if err != nil {
		return err
	}
	cluster.Authorizer.Use(s)
	if err := cluster.Make(ctx, Made{webhooksPath + "validatingwebhookconfigurations", cluster.configuration("ValidatingWebhookConfiguration", reference.AdmitPath, "CREATE")}); err != nil {
		return err
	}
	if err := cluster.until(ctx, "the admission webhook is called", func() (bool, error) {
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

// arm is one thing that is measured, a block at a time.
type arm func(ctx context.Context) error

// measure runs the blocks of all arms, interleaved, in another order each round.
func (c *Cost) measure(ctx context.Context, cluster *Cluster) error {
	if err := cluster.policies(ctx); err != nil {
		return err
	}
	w, err := serveCounted(cluster.Authorizer)
	if err != nil {
		return err
	}
	defer func() { _ = w.close() }()
	arms := []arm{c.requests(cluster, armPlain, plainUser), c.requests(cluster, armToday, &User{Name: costUser}), c.policyArm(cluster)}
	for _, e := range expressions {
		c.Evaluations[e.name] = map[string][]float64{}
		arms = append(arms, c.compiled(e.name, e.text), c.text(e.name, e.text), c.byWebhook(w, e.name, e.text))
	}
	r := rand.New(rand.NewPCG(uint64(c.Options.Seed), 0x636f7374))
	for range c.Options.Rounds + 1 { // the first round warms up
		for _, i := range r.Perm(len(arms)) {
			if err := arms[i](ctx); err != nil {
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

// plainUser and policyUser are authorized by nobody: members of system:masters. The
// policies match the second one only.
var (
	plainUser  = &User{Name: "plain", Groups: []string{"system:masters"}, Outside: true}
	policyUser = &User{Name: "policy", Groups: []string{"system:masters"}, Outside: true}
)

// create sends one request.
func (c *Cluster) create(ctx context.Context, u *User) (time.Duration, error) {
	r, err := c.Requestor()
	if err != nil {
		return 0, err
	}
	body := volume()
	began := time.Now()
	resp, err := r.Send(ctx, u, http.MethodPost, volumesPath, "", body)
	took := time.Since(began)
	if err == nil && resp.Code != http.StatusCreated {
		err = fmt.Errorf("creating a volume as %s: %d: %s", u.Name, resp.Code, resp.Status())
	}
	return took, err
}

// requests is a block of requests to the API server: its median.
func (c *Cost) requests(cluster *Cluster, name string, u *User) arm {
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

// policyArm is a block of requests that ValidatingAdmissionPolicies judge, and what
// the API server's metric says of each policy.
func (c *Cost) policyArm(cluster *Cluster) arm {
	block := c.requests(cluster, armVAP, policyUser)
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
			c.add(e.name, armVAP, (after[e.name].seconds-before[e.name].seconds)/float64(n)*1e6)
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
			err = errors.New("a condition that is false comes to true")
		}
		if err != nil {
			return 0, err
		}
	}
	return float64(time.Since(began).Nanoseconds()) / float64(n) / 1e3, nil
}

// compiled evaluates a condition as an API server would that has it compiled.
func (c *Cost) compiled(name, text string) arm {
	return func(context.Context) error {
		data := vectors.ConditionData{Operation: "CREATE", Object: volume()}.Variables()
		us, err := timed(c.Options.Requests, func() (bool, error) { return reference.Holds(text, data) })
		c.add(name, armCompiled, us)
		return err
	}
}

// text compiles it each time.
func (c *Cost) text(name, text string) arm {
	return func(context.Context) error {
		data := vectors.ConditionData{Operation: "CREATE", Object: volume()}.Variables()
		us, err := timed(c.Options.Requests, func() (bool, error) { return reference.HoldsFresh(text, data) })
		c.add(name, armText, us)
		return err
	}
}

// byWebhook has the authorizer evaluate it.
func (c *Cost) byWebhook(w *counted, name, text string) arm {
	e := &Enforcer{access: w.access, conditions: w.second}
	chain := []vectors.ConditionSet{{AuthorizerName: reference.DefaultName, FailureMode: vectors.FailDeny, Conditions: []vectors.Condition{{ID: name, Effect: vectors.Allow, Type: reference.TypeCEL, Condition: text}}}}
	return func(ctx context.Context) error {
		object := volume()
		us, err := timed(c.Options.Requests, func() (bool, error) {
			got, err := e.ask(ctx, chain, vectors.ConditionData{Operation: "CREATE", Object: object})
			return got == vectors.Allow, err
		})
		c.add(name, armWebhook, us)
		return err
	}
}

// checked is what the API server has measured of a policy.
type checked struct {
	seconds float64
	count   uint64
}

// checks reads apiserver_validating_admission_policy_check_duration_seconds
// (pkg/admission/plugin/policy/validating/metrics): how long the expression of a
// policy ran, as pkg/admission/plugin/cel measures it. dispatcher.go there observes
// only what failed, so the policies are ones that fail, and only for the audit log.
func (c *Cluster) checks(ctx context.Context) (map[string]checked, error) {
	r, err := c.Send(ctx, nil, http.MethodGet, "/metrics", "", nil)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(r.Body))
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	out := map[string]checked{}
	if f := families["apiserver_validating_admission_policy_check_duration_seconds"]; f != nil {
		for _, m := range f.GetMetric() {
			i := slices.IndexFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "policy" })
			if i >= 0 {
				out[m.GetLabel()[i].GetValue()] = checked{m.GetHistogram().GetSampleSum(), m.GetHistogram().GetSampleCount()}
			}
		}
	}
	return out, nil
}

// policies makes a ValidatingAdmissionPolicy of each expression, and waits until
// they are in force.
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
	return c.until(ctx, "the policies are checked", func() (bool, error) {
		if _, err := c.create(ctx, policyUser); err != nil {
			return false, err
		}
		seen, err := c.checks(ctx)
		return len(seen) == len(expressions), err
	})
}

// until waits for something that the API server takes a moment for.
func (c *Cluster) until(ctx context.Context, what string, ok func() (bool, error)) error {
	for deadline := time.Now().Add(settle); ; {
		if done, err := ok(); done || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not so within %s: %s", settle, what)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
