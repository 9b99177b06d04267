package certify

import (
	"context"
	"slices"
	"time"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/internal/seq"
)

// controlDuration is how long the reference is asked at a rate at which something was found. A part of a long time is
// enough to show what the machine does now.
const controlDuration = time.Minute

// askControl asks the reference what was answered wrongly, together with what was asked around it.
func (r *runner) askControl(ctx context.Context, answers []Answer, findings []Finding) error {
	levels := controlledLevels(findings)
	if len(levels) == 0 {
		return nil
	}
	w, stop, err := Serve(reference.Handler(r.Plan.decider()))
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	c, err := w.newClient(false)
	if err != nil {
		return err
	}
	defer c.close()
	o := r.Options
	o.Webhook, o.Levels = w, levels
	if !slices.Contains(levels, Load) {
		o.LoadOptions.Rates = nil
	}
	o.LoadOptions.Length = min(o.LoadOptions.Length, controlDuration)
	progress := func(step string, n int) { r.Runner.Progress("control: "+step, n) }
	c.lag = r.client.lag
	control := &runner{Runner: NewRunner[Answer](progress), Options: o, client: c}
	control.askDirect(ctx)
	control.askLoad(ctx)
	shortened := o.LoadOptions.Length < r.LoadOptions.Length
	for _, a := range answers { // also ask what was answered wrongly later, in the part that the reference was not asked
		v, isKnown := r.Plan.findQuestion(a.Vector)
		later := shortened && isLoadCheck(a.Check) && a.Stage == nil
		if !isKnown || !r.Plan.isWrong(a) {
			continue
		}
		if a.Check == firstCheck || later {
			right := c.ask(ctx, a.Check, v)
			right.Micros = 1000 * right.Millis
			control.Answers = append(control.Answers, right)
		}
	}
	r.keepControls(answers, control.Answers)
	return ctx.Err()
}

// controlledLevels returns the levels of those findings that the reference can explain.
func controlledLevels(findings []Finding) (levels []CertificationLevel) {
	askable := append(Levels(), Safe, Load)
	for _, f := range findings {
		isAnswer := slices.Contains(askable, f.Level) && !slices.Contains(unreachableFaults, f.Reason)
		if isAnswer && !f.Advice {
			levels = seq.AppendMissing(levels, f.Level)
		}
	}
	return levels
}

// keepControls adds the answers of the reference: those to questions that the authorizer answered wrongly, and all of
// those at a rate.
func (r *runner) keepControls(answers, controls []Answer) {
	wrong := map[answerKey]bool{}
	for _, a := range answers {
		if a.Stage == nil && r.Plan.isWrong(a) {
			wrong[a.key()] = true
		}
	}
	for _, a := range controls {
		if isLoadCheck(a.Check) || wrong[a.key()] {
			a.Control = true
			r.Answers = append(r.Answers, a)
		}
	}
}
