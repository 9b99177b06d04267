package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/verdicts"
)

// A Check checks an API server as a whole, whereas a vector checks one request.
type Check struct {
	ID string
	// Section is the section of the KEP. Statement is what the check shows.
	Section, Statement string
	// Want lists the lines that the check must return.
	Want []string
	// on is the configuration of the API server. A check that changes it is the last of its configuration.
	on  kind
	run func(context.Context, *player) ([]string, error)
}

// CheckEvidence is the evidence of a check: the lines that it returned.
type CheckEvidence struct {
	Check string   `json:"check"`
	Lines []string `json:"lines"`
}

// Checks returns all checks.
func Checks() []Check {
	usual, byDefault, noContext := kind{gate: "on", plugin: "on"}, kind{gate: "on"}, kind{gate: "on", plugin: "on", noContext: true}
	return []Check{
		{
			ID: "plugin-by-default", Section: "AuthorizationConditionsEnforcer admission controller", on: byDefault, run: tryConditions,
			Statement: "With the gate on, the plugin enforces conditions without being enabled by name.",
			Want:      []string{"true: admitted, evaluated by a0", "false: refused, evaluated by a0"},
		},
		{
			ID:        "wildcards",
			Section:   "Changes to (Self)SubjectAccessReview",
			on:        usual,
			run:       reviewWildcards,
			Statement: "A review whose resource or version is a wildcard is answered without conditions, for which object they would be about is not known.",
			Want: []string{
				"v1 configmaps: asked for conditions, Conditional",
				"* configmaps: asked for none, NoOpinion",
				"v1 *: asked for none, NoOpinion",
			},
		},
		{
			ID:        "versions",
			Section:   "Authorizer requirements",
			on:        usual,
			run:       writeVersions,
			Statement: "Conditions are evaluated on both objects in the version of the request, whichever the stored object was made in.",
			Want: []string{
				"created as v1: object autoscaling/v1",
				"updated as v2: object autoscaling/v2, oldObject autoscaling/v2",
				"updated as v1: object autoscaling/v1, oldObject autoscaling/v1",
			},
		},
		{
			ID:        "conditions-review",
			Section:   "Supporting webhooks through the AuthorizationConditionsReview API",
			on:        usual,
			run:       postConditions,
			Statement: "kube-apiserver serves AuthorizationConditionsReview, as a webhook does, and evaluates what it has answered.",
			Want:      []string{"true: Allow, evaluated by a0-deny", "false: NoOpinion, evaluated by a0-deny"},
		},
		{
			ID:        "impossible-decision",
			Section:   "Supporting webhooks through the AuthorizationConditionsReview API",
			on:        usual,
			run:       insistOnDecisions,
			Statement: "What a webhook evaluates conditions to without being able to fails closed: an Allow of conditions that can only deny refuses what the authorizer behind allows (kubernetes/kubernetes#141959, and k8s.io/apiserver; the KEP does not say).",
			Want:      []string{"NoOpinion: admitted, evaluated by a0", "Allow: refused, evaluated by a0"},
		},
		{
			ID:        "metric",
			Section:   "Monitoring Requirements",
			on:        usual,
			run:       countDecisions,
			Statement: `A conditional decision is counted by apiserver_authorization_decisions_total{decision="conditional"} (k8s.io/apiserver; the KEP names no metric).`,
			Want:      []string{"conditional: 1 more of a0-deny", "allowed: 0 more of a0-deny"},
		},
		{
			ID:        "off-and-on",
			Section:   "Feature Enablement and Rollback",
			on:        usual,
			run:       turnOffAndOn,
			Statement: "The gate is turned off, and on again, on the same data and with nothing else changed: conditions are asked for and enforced whenever it is on.",
			Want: []string{
				"on: asked for conditions, admitted",
				"off: asked for none, refused",
				"on again: asked for conditions, admitted",
			},
		},
		{
			ID:        "reload",
			Section:   "Feature Enablement and Rollback",
			on:        noContext,
			run:       reloadContext,
			Statement: "A webhook without a context for conditions is asked for none. Reloading the configuration turns them on and off for it while the API server runs.",
			Want: []string{
				"left out: asked for none, refused", "put in: asked for conditions, admitted", "taken out: asked for none, refused",
			},
		},
	}
}

// Judge compares the lines that a check returned with the lines that it must return.
func (c Check) Judge(observation *CheckEvidence) vectors.Result {
	if slices.Equal(c.Want, observation.Lines) {
		return vectors.Result{Verdict: verdicts.Passed}
	}
	r := vectors.Result{Verdict: verdicts.Failed}
	for i := range max(len(c.Want), len(observation.Lines)) {
		want, got := lineAt(c.Want, i), lineAt(observation.Lines, i)
		if want != got {
			r.Why = append(r.Why, fmt.Sprintf("want %q, got %q", want, got))
		}
	}
	return r
}

func lineAt(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}

// RunChecks runs checks. Checks of the same configuration run on one API server.
func RunChecks(ctx context.Context, all []Check, o Options) (observations []*CheckEvidence, err error) {
	byKind, kinds := map[kind][]Check{}, []kind{}
	for _, c := range all {
		if byKind[c.on] == nil {
			kinds = append(kinds, c.on)
		}
		byKind[c.on] = append(byKind[c.on], c)
	}
	for _, k := range kinds {
		more, err := runChecksOn(ctx, k, byKind[k], o)
		if err != nil {
			return nil, err
		}
		observations = append(observations, more...)
	}
	return observations, nil
}

func runChecksOn(ctx context.Context, k kind, all []Check, o Options) (observations []*CheckEvidence, err error) {
	p, err := startPlayer(ctx, k, 1, o)
	if err != nil {
		return nil, explainUnknown(ctx, err, o)
	}
	defer func() { err = errors.Join(err, p.close()) }()
	for _, c := range all {
		lines, err := c.run(ctx, p)
		if err = errors.Join(err, p.ClusterErr()); err != nil {
			return nil, fmt.Errorf("%s: %w", c.ID, err)
		}
		observations = append(observations, &CheckEvidence{c.ID, lines})
		o.Played()
	}
	return observations, nil
}

// conditionalChain returns a chain of one authorizer that allows on a condition.
func conditionalChain(name string, is vectors.Truth) []vectors.Authorizer {
	return []vectors.Authorizer{{Name: name, FailureMode: vectors.FailDeny, Decision: vectors.Conditional, Conditions: []vectors.EvaluatedCondition{{
		Condition: vectors.Condition{ID: "example.com/granted", Effect: vectors.Allow, Type: "example.com/opaque", Condition: "policy of the checks"},
		Is:        is, PerObject: []vectors.Truth{is},
	}}}}
}

// aCreate is a request that conditions are enforced for.
func aCreate() *vectors.APIServer {
	return &vectors.APIServer{Objects: 1, Request: vectors.Request{Verb: "create", APIVersion: "v1", Resource: "configmaps"}}
}

// outcome describes the outcome of a request in one or two words.
func (s *Sent) outcome() string {
	if s.admitted() {
		return "admitted"
	}
	if s.Code == http.StatusForbidden {
		return "refused"
	}
	return fmt.Sprintf("answered %d", s.Code)
}

// tryConditions sends a request that is allowed on a true condition, and one that is allowed on a false condition.
func tryConditions(ctx context.Context, p *player) (lines []string, err error) {
	for _, is := range []vectors.Truth{vectors.True, vectors.False} {
		sent, err := p.send(ctx, aCreate(), &script{verb: "create", chain: conditionalChain("a0", is)})
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%s: %s, evaluated by %s", is, sent.outcome(), strings.Join(names(sent.Events, evaluates), ", ")))
	}
	return lines, nil
}

// insistOnDecisions has a webhook evaluate a Deny condition to a possible decision, and then to an impossible one. The
// authorizer behind it allows.
func insistOnDecisions(ctx context.Context, p *player) (lines []string, err error) {
	for _, d := range []vectors.Decision{vectors.NoOpinion, vectors.Allow} {
		chain := conditionalChain("a0", vectors.False)
		chain[0].Conditions[0].Effect = vectors.Deny
		sent, err := p.send(ctx, aCreate(), &script{verb: "create", chain: chain, behind: vectors.Allow, insists: d})
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%s: %s, evaluated by %s", d, sent.outcome(), strings.Join(names(sent.Events, evaluates), ", ")))
	}
	return lines, nil
}

// reviewWildcards posts reviews that ask for conditions: about one version and resource, about any version, and about
// any resource.
func reviewWildcards(ctx context.Context, p *player) (lines []string, err error) {
	for _, resource := range []struct{ version, resource string }{{"v1", "configmaps"}, {"*", "configmaps"}, {"v1", "*"}} {
		spec := vectors.SubjectAccessReviewSpec{
			ConditionalAuthorization: &vectors.ConditionalAuthorizationConfiguration{Mode: vectors.Optimized},
		}
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb:      "create",
			Version:   resource.version,
			Resource:  resource.resource,
			Namespace: "default",
		}
		s := &script{verb: "create", chain: conditionalChain("a0", vectors.True)}
		status, err := p.reviewUnder(ctx, subjectReview, spec, s)
		if err != nil {
			return nil, err
		}
		lines = append(lines,
			fmt.Sprintf("%s %s: asked %s, %s", resource.version, resource.resource, joinModes(s.modes), status.Decision()),
		)
	}
	return lines, nil
}

// joinModes writes down whether each authorizer was asked for conditions, in whichever form.
func joinModes(modes []vectors.Mode) string {
	var words []string
	for _, m := range modes {
		word := "for none"
		if m == vectors.HumanReadable || m == vectors.Optimized {
			word = "for conditions"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// writeVersions writes one HorizontalPodAutoscaler in two versions.
func writeVersions(ctx context.Context, p *player) (lines []string, err error) {
	p.n++
	name := fmt.Sprintf("vector-%d-0", p.n)
	for _, step := range []struct{ word, method, version string }{
		{"created as v1", http.MethodPost, "v1"}, {"updated as v2", http.MethodPut, "v2"}, {"updated as v1", http.MethodPut, "v1"},
	} {
		path := "/apis/autoscaling/" + step.version + "/namespaces/default/horizontalpodautoscalers"
		s := &script{
			verb:  map[string]string{http.MethodPost: "create", http.MethodPut: "update"}[step.method],
			chain: conditionalChain("a0", vectors.True),
		}
		s.user, s.object = fmt.Sprintf("%s%d", userPrefix, p.n), strings.TrimSuffix(name, "-0")
		if step.method == http.MethodPut {
			path += "/" + name
		}
		body := map[string]any{
			"apiVersion": "autoscaling/" + step.version,
			"kind":       "HorizontalPodAutoscaler",
			"metadata":   map[string]any{"name": name},
			"spec": map[string]any{
				"maxReplicas": 2, "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
			},
		}
		sent, err := p.observe(ctx, s, func() (answer, error) { return p.exchange(ctx, s.user, step.method, path, "", body) })
		if err != nil {
			return nil, err
		}
		line := strings.Join(s.versions, ", ")
		if !sent.admitted() {
			line = sent.outcome() + " " + sent.Message
		}
		lines = append(lines, step.word+": "+line)
	}
	return lines, nil
}

// conditionsPath is the path at which kube-apiserver serves reviews of conditions.
const conditionsPath = "/apis/authorization.k8s.io/v1alpha1/authorizationconditionsreviews"

// postConditions has the API server evaluate the conditions that its own review has answered with.
func postConditions(ctx context.Context, p *player) (lines []string, err error) {
	name := placeOf(0, vectors.FailDeny) // the API server names the authorizer like this, too
	for _, is := range []vectors.Truth{vectors.True, vectors.False} {
		spec := vectors.SubjectAccessReviewSpec{
			ConditionalAuthorization: &vectors.ConditionalAuthorizationConfiguration{Mode: vectors.Optimized},
		}
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb:      "create",
			Version:   "v1",
			Resource:  "configmaps",
			Namespace: "default",
		}
		s := &script{verb: "create", chain: conditionalChain(name, is)}
		status, err := p.reviewUnder(ctx, subjectReview, spec, s)
		if err != nil {
			return nil, err
		}
		line, err := p.postSets(ctx, s, status.ConditionsChain)
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%s: %s", is, line))
	}
	return lines, nil
}

// postSets posts condition sets to the API server while the webhooks follow the script that gave them, and returns the
// outcome in words.
func (p *player) postSets(ctx context.Context, s *script, sets []vectors.ConditionSet) (string, error) {
	s.object, s.events = "vector-review", nil
	object := vectors.Object(object(aCreate().Request, s.object, 0))
	body, err := p.said.wire.AskConditions(
		vectors.AuthorizationConditionsRequest{
			UID:           "of-the-checks",
			ConditionSets: sets,
			ConditionData: vectors.ConditionData{Operation: "CREATE", Object: object},
		},
	)
	if err != nil {
		return "", err
	}
	p.said.follow(s) // under would forget the sets that were answered
	defer p.said.follow(nil)
	a, err := p.exchange(ctx, "", http.MethodPost, conditionsPath, "", json.RawMessage(body))
	if err != nil {
		return "", err
	}
	if a.code != http.StatusCreated && a.code != http.StatusOK {
		return fmt.Sprintf("answered %d %s", a.code, a.message()), nil
	}
	response, err := p.said.wire.ReadConditions(a.body)
	if err != nil {
		return "", err
	}
	if response == nil {
		return "answered without a response", nil
	}
	return fmt.Sprintf("%s, evaluated by %s", response.Decision(), strings.Join(names(s.events, evaluates), ", ")), nil
}

// countDecisions counts the decisions about one request that is authorized on a false condition. It must not count an
// Allow.
func countDecisions(ctx context.Context, p *player) (lines []string, err error) {
	before, err := p.decisions(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := p.send(ctx, aCreate(), &script{verb: "create", chain: conditionalChain("a0", vectors.False)}); err != nil {
		return nil, err
	}
	after, err := p.decisions(ctx)
	if err != nil {
		return nil, err
	}
	place := placeOf(0, vectors.FailDeny)
	for _, decision := range []string{"conditional", "allowed"} {
		lines = append(lines, fmt.Sprintf("%s: %v more of %s", decision, after[decision]-before[decision], place))
	}
	return lines, nil
}

// decisions reads how often the first webhook was counted with each decision.
func (p *player) decisions(ctx context.Context) (map[string]float64, error) {
	const family = "apiserver_authorization_decisions_total"
	families, err := p.Scrape(ctx, family)
	if err != nil {
		return nil, err
	}
	counts := map[string]float64{}
	for _, m := range families[family].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["name"] == placeOf(0, vectors.FailDeny) {
			counts[labels["decision"]] += m.GetCounter().GetValue()
		}
	}
	return counts, nil
}

// turnOffAndOn sends a request on a condition that is true while the gate is on, off and on again.
func turnOffAndOn(ctx context.Context, p *player) (lines []string, err error) {
	plane, isLocal := p.Plane()
	if !isLocal {
		return nil, errors.New("the API server cannot be restarted with another gate")
	}
	for _, step := range []struct {
		word string
		on   bool
	}{{"on", true}, {"off", false}, {"on again", true}} {
		if len(lines) > 0 {
			if err := plane.RestartAPIServer(ctx, func(o *local.Options) { o.FeatureGates[Gate] = step.on }); err != nil {
				return nil, err
			}
		}
		s := &script{verb: "create", chain: conditionalChain("a0", vectors.True)}
		sent, err := p.send(ctx, aCreate(), s)
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%s: asked %s, %s", step.word, joinModes(s.modes), sent.outcome()))
	}
	return lines, nil
}

// reloadTimeout is the longest time in which an API server must use a changed configuration.
const reloadTimeout = time.Minute

// reloadContext sends requests on a condition that is true before, between and after reloads.
func reloadContext(ctx context.Context, p *player) (lines []string, err error) {
	plane, isLocal := p.Plane()
	if !isLocal {
		return nil, errors.New("the API server cannot be given another configuration")
	}
	var reloader clusters.Reloader = plane
	for _, step := range []struct{ word, context, mode string }{
		{"left out", "", "for none"}, {"put in", p.contextText(), "for conditions"}, {"taken out", "", "for none"},
	} {
		if len(lines) > 0 {
			if err := reloader.ReloadAuthorization(chainOf(1, step.context)); err != nil {
				return nil, err
			}
		}
		line := ""
		err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, reloadTimeout, true, func(ctx context.Context) (bool, error) {
			s := &script{verb: "create", chain: conditionalChain("a0", vectors.True)}
			sent, err := p.send(ctx, aCreate(), s)
			if err != nil {
				return false, err
			}
			line = fmt.Sprintf("%s: asked %s, %s", step.word, joinModes(s.modes), sent.outcome())
			return joinModes(s.modes) == step.mode, nil
		})
		if err != nil && !wait.Interrupted(err) {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, ctx.Err()
}
