package certify

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

type about struct{ check, vector string }

// controls are what the reference authorizer did where another one was wrong.
type controls struct {
	plan *Plan
	// answers are those of the reference to the same; wrong those of them that are.
	answers, wrong map[about]Answer
	rates          map[string]Rate
}

func (b *Plan) controls(answers []Answer) controls {
	c := controls{b, map[about]Answer{}, map[about]Answer{}, map[string]Rate{}}
	var own []Answer
	for _, a := range answers {
		if !a.Control {
			continue
		}
		a.Control = false
		if own = append(own, a); a.Stage != nil || a.Seen != nil && a.Seen.Cell != nil {
			continue
		}
		key := about{a.Check, a.Vector}
		c.answers[key] = a
		if b.isWrong(a) {
			c.wrong[key] = a
		}
	}
	all, _, _ := b.rates(own)
	for _, r := range all {
		c.rates[r.check()] = r
	}
	return c
}

func (b *Plan) isWrong(a Answer) bool {
	if a.Seen != nil {
		j, err := b.judgeSeen(a)
		return err == nil && (j.reason != "" || j.unclear)
	}
	v, ok := b.vector(a.Vector)
	return ok && (len(judge(v, a)) > 0 || a.Opened > maxOpened)
}

// of says whose fault a wrong answer is. Nothing of what an authorizer decides is seen if it cannot be reached:
// that is the environment. Otherwise it is the authorizer if the reference got the same right, and if it did not,
// the API server where one has a part in it, or the harness. Empty is not found out.
func (c controls) of(a Answer, reason string) verdicts.Blame {
	if slices.Contains(unreachable, reason) {
		return verdicts.BlameEnvironment
	}
	key := about{a.Check, a.Vector}
	if _, ok := c.answers[key]; !ok {
		return ""
	}
	wrong, ok := c.wrong[key]
	switch {
	case a.Fault != "" && c.overloaded(a.Check):
		return verdicts.BlameEnvironment
	case !ok:
		return verdicts.BlameAuthorizer
	case wrong.Seen != nil && c.unclear(wrong):
		return verdicts.BlameEnvironment
	case wrong.Seen != nil && !c.contradicts(wrong):
		return verdicts.BlameAPIServer
	}
	return verdicts.BlameHarness
}

func (c controls) overloaded(check string) bool {
	r, ok := c.rates[check]
	return ok && (r.Inconclusive || len(r.findings()) > 0)
}

// unclear says whether nothing can be said about the reference either.
func (c controls) unclear(a Answer) bool {
	j, err := c.plan.judgeSeen(a)
	return err != nil || j.unclear
}

// contradicts says whether the reference fell short of the expectation: what it decided is what the policy says.
func (c controls) contradicts(a Answer) bool {
	if a.Check == revocation {
		// The webhook itself has nothing but the reference behind it.
		return a.Vector == "revoked/"+byWebhook || a.Vector == "granted/"+byWebhook
	}
	check := c.plan.clusterChecks()[a.Vector]
	if check.Scenario != nil {
		return verdicts.Judge(check.Scenario, a.Seen.Scenario).Blame == verdicts.BlameAuthorizer
	}
	if check.Phase != up && check.Phase != again || check.Reason == hides {
		return false
	}
	return c.plan.Policy.Decide(check.Spec) != check.Expect
}

// ofRate says whose fault it is that a rate was not kept: the machine's if the reference could not keep it either.
func (c controls) ofRate(r Rate, reason string) verdicts.Blame {
	control, ok := c.rates[r.check()]
	if !ok {
		return ""
	}
	_, too := control.findings()[reason]
	switch {
	case reason == "memory-grows": // that of its own process
		return verdicts.BlameAuthorizer
	case too, control.Inconclusive, reason == "slows-down" && len(r.P99s) > 0 && control.P99 > 2*r.P99s[0]+drifted:
		return verdicts.BlameEnvironment
	}
	return verdicts.BlameAuthorizer
}

// soakControl is how long the reference is asked at most where a soak found something.
const soakControl = time.Minute

func (r *runner) control(ctx context.Context, findings []Finding) error {
	var levels []CertificationLevel
	for _, f := range findings {
		direct := slices.Contains(Levels(), f.Level) || f.Level == Load || f.Level == Soak
		if direct && !slices.Contains(unreachable, f.Reason) && !slices.Contains(levels, f.Level) {
			levels = append(levels, f.Level)
		}
	}
	if len(levels) == 0 {
		return nil
	}
	w, stop, err := Serve(reference.Handler(r.Plan.decider()))
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	c, err := w.client(false)
	if err != nil {
		return err
	}
	defer c.close()
	o := r.Options
	o.Webhook, o.Levels = w, levels
	if !slices.Contains(levels, Load) {
		o.LoadOptions.Rates = nil
	}
	// A soak would be as long again: a part of it says what the machine does now.
	if o.LoadOptions.Soak = min(o.LoadOptions.Soak/10, soakControl); !slices.Contains(levels, Soak) {
		o.LoadOptions.Soak = 0
	}
	again := &runner{newRunner[Answer](func(step string, n int) { r.Runner.Progress("control: "+step, n) }), o, c}
	again.direct(ctx)
	again.load(ctx)
	for _, a := range r.Answers { // and what was wrong in the rest of it
		if v, ok := r.Plan.vector(a.Vector); ok && (a.Check == first || a.Check == soak && o.LoadOptions.Soak > 0) && r.Plan.isWrong(a) {
			right := c.ask(ctx, a.Check, v)
			right.Micros = 1000 * right.Millis
			again.Answers = append(again.Answers, right)
		}
	}
	r.keepControls(again.Answers)
	return ctx.Err()
}

// Serve has a handler answer reviews by TLS, and says how to reach it.
func Serve(h http.Handler) (w *Webhook, stop func() error, err error) {
	s, err := reference.Start(h, nil)
	if err != nil {
		return nil, nil, err
	}
	raw, err := s.Kubeconfig()
	if err == nil {
		w, err = ParseWebhook(raw, "")
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return w, s.Close, nil
}

func (b *Plan) decider() reference.Decider {
	return func(s spec) scenarios.Decision { return b.Policy.Decide(s) }
}

// keepControls adds the answers of the reference where those of the authorizer are wrong, and all of those at a rate.
func (r *runner) keepControls(answers []Answer) {
	wrong := map[about]bool{}
	for _, a := range r.Answers {
		if a.Stage == nil && (a.Seen == nil || a.Seen.Cell == nil) && r.Plan.isWrong(a) {
			wrong[about{a.Check, a.Vector}] = true
		}
	}
	for _, a := range answers {
		if isLoad(a.Check) || wrong[about{a.Check, a.Vector}] {
			a.Control = true
			r.Answers = append(r.Answers, a)
		}
	}
}
