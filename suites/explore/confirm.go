package explore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// shrinkLimit bounds how many runs are made to find the smallest case.
const shrinkLimit = 400

// confirm runs a case again, alone and under fresh names, and reports it if it differs again.
func (l *lane) confirm(ctx context.Context, p *prepared) error {
	again, err := l.alone(ctx, p, p.scenario, p.objects)
	if err != nil {
		return err
	}
	if again.Verdict == verdicts.Invalid {
		return fmt.Errorf("case %d, run alone: %s", p.number, again.Reason)
	}
	if !failed(again) {
		if failed(p.result) {
			l.found.NotConfirmed++
			l.say("case %d differed once, and not when it was run again: %s", p.number, p.result.Reason)
		}
		return nil
	}
	l.say("case %d: %s", p.number, again.Reason)
	small, result, err := l.shrink(ctx, p, again)
	if err != nil {
		return err
	}
	d := Disagreement{Case: p.number, Choice: p.choice.String(), Reason: result.Reason, Differences: result.Differences}
	if d.Scenario, err = l.print(small, p, result); err != nil {
		return err
	}
	if d.OverRBAC = p.objects; !p.objects && cases.Unique(small) {
		over, err := l.alone(ctx, p, small, true)
		if err != nil {
			return err
		}
		d.OverRBAC = failed(over)
	}
	l.found.Disagreements = append(l.found.Disagreements, d)
	l.o.Events(Event{Text: fmt.Sprintf("%s: case %d, made small:\n%s", l.found.Name, p.number, d.Scenario)})
	return nil
}

// shrink makes a case small while it differs.
func (l *lane) shrink(ctx context.Context, p *prepared, r verdicts.Result) (*scenarios.Scenario, verdicts.Result, error) {
	var broken error
	small := cases.Shrink(p.scenario, shrinkLimit, func(s *scenarios.Scenario) bool {
		if broken != nil || p.objects && !canBeObjects(s) {
			return false
		}
		result, err := l.alone(ctx, p, s, p.objects)
		if err != nil {
			broken = err
			return false
		}
		if result.Verdict != verdicts.Failed {
			return false
		}
		r = result
		return true
	})
	if broken != nil {
		return nil, r, broken
	}
	small, _, err := l.expect(small, p.asked.Facts)
	return small, r, err
}

// alone runs a scenario by itself, with metrics read for every request. objects
// says whether its grants are RBAC objects. The server is one as it was of which it is made.
func (l *lane) alone(ctx context.Context, of *prepared, s *scenarios.Scenario, objects bool) (r verdicts.Result, err error) {
	if err := ctx.Err(); err != nil {
		return r, err
	}
	l.runs++
	p := &prepared{at: of.at, asked: of.asked}
	if p.scenario, p.played, err = l.expect(s, p.asked.Facts); err != nil {
		return r, err
	}
	p.bind(scenarios.Suffix(l.o.Seed, l.found.Name, "alone", strconv.Itoa(l.runs)))
	ev, err := l.run(ctx, p, objects)
	if err != nil {
		return r, err
	}
	return verdicts.Judge(p.scenario, ev), nil
}

func (l *lane) runAlone(ctx context.Context, p *prepared, objects bool) (ev *verdicts.Evidence, err error) {
	h, err := l.hostFor(ctx, p.at)
	switch {
	case err != nil:
	case objects:
		ev = h.replay.Replay(ctx, p.scenario, p.suffix)
		err = errors.Join(ctx.Err(), h.target.Err())
	default:
		ev, err = l.sendAlone(ctx, h, p)
	}
	if err == nil {
		ev, err = reports.RedactEvidence(ev)
	}
	if err == nil {
		l.seen.Alone = append(l.seen.Alone, ev)
	}
	return ev, err
}

// sendAlone sends a scenario whose grants the recorder answers.
func (l *lane) sendAlone(ctx context.Context, h *host, p *prepared) (*verdicts.Evidence, error) {
	ev := l.emptyEvidence(p)
	defer l.grants.Store(nil)
	for i, st := range p.bound.Steps {
		if st.Wait > 0 {
			_ = l.pass(ctx, &batch{special: expired}, 1) // who interrupts it interrupts the next request
		}
		if st.Request == nil {
			continue
		}
		l.grantsOf(p.bound, i)
		var o verdicts.Observation
		if err := h.target.Observe(ctx, &o, func() (err error) {
			o, err = l.request(ctx, h, p.bound, i)
			return err
		}); err != nil {
			return nil, err
		}
		ev.Steps = append(ev.Steps, o)
	}
	return ev, nil
}

// print renders a case as a scenario file, with what a file needs beside what was found.
func (l *lane) print(s *scenarios.Scenario, p *prepared, r verdicts.Result) (string, error) {
	comments := []string{
		fmt.Sprintf("Kubernetes %s, gate %s: the model and the server disagree.", l.found.Kubernetes, p.asked.Facts.Gate),
		strings.Join(strings.Fields(r.Reason), " "), "The expectations are the model's.",
	}
	var denied []int
	for i, st := range s.Steps {
		if x := st.Expect; x != nil && x.Outcome != scenarios.Allowed && x.Outcome != scenarios.ServerError {
			denied = append(denied, i)
		}
	}
	if len(denied) > 0 {
		paired, ok := cases.Paired(s, denied)
		if !ok {
			comments = append(comments, "A twin is missing: a scenario that differs in one respect and is allowed.")
		}
		var err error
		if s, _, err = l.expect(paired, p.asked.Facts); err != nil {
			return "", err
		}
	}
	binary, err := version.ParseGeneric(p.asked.Facts.Binary) // scenarios name minor versions
	if err != nil {
		return "", err
	}
	s.Requires.Kubernetes, s.Requires.Binary = "", fmt.Sprintf("=%d.%d", binary.Major(), binary.Minor())
	s.Description = fmt.Sprintf("Found by authzconf explore, seed %d, case %d%s.", l.o.Seed, p.number, p.at)
	raw, err := cases.Print(s, comments...)
	return string(raw), err
}

// allow implements recorder.Script with the grants of the case that is being sent, and no others: what none of them
// covers is left to the authorizers behind.
func (l *lane) allow(spec authorizationv1.SubjectAccessReviewSpec) recorder.Answer {
	grants := l.grants.Load()
	return recorder.Answer{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: grants != nil && scenarios.Covered(*grants, spec)}}
}

// grantsOf brings the grants of a bound scenario into force that hold before a step.
func (l *lane) grantsOf(bound *scenarios.Scenario, step int) {
	grants := bound.GrantsAt(step)
	l.grants.Store(&grants)
}
