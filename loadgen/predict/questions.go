package predict

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Line is a question of somebody who plans a cluster, with its answer in words.
type Line struct {
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

// answerQuestions returns the answers that follow from the figures.
func (p *Prediction) answerQuestions() ([]Line, error) {
	first, last := p.Situations[0], p.Situations[len(p.Situations)-1]
	list := []Line{{first.Name, p.describeFigures(first.Steady, first.Requests)}}
	for _, o := range p.Situations[1:] {
		list = append(list, Line{o.Name, p.compareWith(o, first)})
	}
	for _, event := range []struct {
		question    string
		last, first Figures
		rest        string
	}{
		{"all API servers start", last.First, first.First, ", for " + time.Duration(p.Plan.Memory).String()},
		{"an API server restarts", last.Restart, first.Restart, ", for " + p.eventTime()},
		{"a DaemonSet is rolled out", last.Rollout, first.Rollout, ", for " + p.eventTime()},
		{"what is remembered ends", last.Expiry, first.Expiry, ", in the highest second"},
		{"the peak", last.Peak, first.Peak, ": " + last.PeakAt},
	} {
		text := p.describeFigures(event.last, 0) + event.rest
		if len(p.Situations) > 1 {
			text += "; before " + p.describeFigures(event.first, 0)
		}
		list = append(list, Line{event.question, text})
	}
	if memory := p.describeMemory(last); memory != "" {
		list = append(list, Line{"the webhook's answers", memory})
	}
	list = append(list, Line{"priority level", describeLevels(first, last)})
	denied, err := p.describeDenied()
	return append(list, Line{"a request that is refused", denied}), err
}

// eventTime returns how long a restart or a rollout takes.
func (p *Prediction) eventTime() string { return time.Duration(p.Plan.Within).String() }

// hasWebhook reports whether there is one.
func (a Authorizer) hasWebhook() bool { return a.Chain == WebhookFirst || a.Chain == WebhookLast }

// describeFigures returns figures in words. If the number of requests is given, it adds the figures for each request.
func (p *Prediction) describeFigures(f Figures, requests float64) string {
	text := FormatRate(f.Checks.Value()) + " checks/s"
	if requests > 0 {
		text += fmt.Sprintf(" (%.2f a request)", f.Checks.Value()/requests)
	}
	if p.Plan.Authorizer.hasWebhook() {
		text += ", " + FormatRate(f.Reviews.Value()) + " webhook reviews/s"
	}
	return text
}

// compareWith returns the long run of a situation, and how it differs from that of another. If it does not differ, it
// returns what the first seconds cost more.
func (p *Prediction) compareWith(o, base Outcome) string {
	text := p.describeFigures(o.Steady, o.Requests) + ": " + formatChange(o.Steady.Checks, base.Steady.Checks)
	if p.Plan.Authorizer.hasWebhook() {
		text += ", " + formatChange(o.Steady.Reviews, base.Steady.Reviews)
	}
	seconds := time.Duration(p.Plan.Memory).Seconds()
	more := (o.First.Checks.Value() - base.First.Checks.Value()) * seconds
	if o.RBAC == base.RBAC && more > 0 {
		text += fmt.Sprintf("; %s checks more when all API servers start", FormatRate(math.Round(more)))
	}
	return text
}

// formatChange returns by how much a figure differs from another.
func formatChange(now, before Figure) string {
	was, is := before.Value(), now.Value()
	switch {
	case math.Abs(is-was) <= was/10_000:
		return "as many"
	case was == 0:
		return FormatRate(is) + " more"
	}
	return fmt.Sprintf("%+.1f %%", 100*(is-was)/was)
}

// describeMemory returns whether the API servers remember all answers of the webhook, or "" if they remember none.
func (p *Prediction) describeMemory(o Outcome) string {
	a := p.Plan.Authorizer
	switch {
	case !a.hasWebhook() || !a.Cache || o.Questions == 0:
		return ""
	case o.Questions > a.Size:
		return fmt.Sprintf(
			"%s different questions, and each API server remembers %s: some are pushed out before they are asked again",
			FormatRate(float64(o.Questions)),
			FormatRate(float64(a.Size)),
		)
	}
	return fmt.Sprintf(
		"%s different questions fit into the %s that each API server remembers",
		FormatRate(float64(o.Questions)),
		FormatRate(float64(a.Size)),
	)
}

// describeLevels returns where the requests are dispatched, before and after.
func describeLevels(first, last Outcome) string {
	before, after := first.levels(), last.levels()
	if slices.Equal(before, after) {
		return strings.Join(after, ", ")
	}
	return strings.Join(after, ", ") + "; it was " + strings.Join(before, ", ")
}

func (o Outcome) levels() []string {
	names := seq.Map(o.Levels, func(l LevelFigures) string { return l.Level })
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	if len(names) == 0 {
		return []string{"none: refused before"}
	}
	return names
}

// describeDenied returns what a request costs that nobody is allowed to send.
func (p *Prediction) describeDenied() (string, error) {
	var parts []string
	for _, w := range p.Plan.Workloads {
		var counts [2]int
		for i, gate := range []scenarios.Gate{scenarios.GateOff, scenarios.GateOn} {
			s, err := newScript(w, Situation{gate, NoRBAC}, RBACAlone)
			if err != nil {
				return "", err
			}
			counts[i] = len(s.tries)
		}
		parts = append(parts, fmt.Sprintf("%d checks with the gate on, %d with it off", counts[1], counts[0]))
	}
	return strings.Join(seq.AppendMissing(nil, parts...), "; ") + ", each time: a denial is not remembered, and comes before priority and fairness", nil
}

// FormatRate returns a number with as many digits as people read.
func FormatRate(rate float64) string {
	switch {
	case rate >= 100 || rate == math.Trunc(rate):
		return groupDigits(strconv.FormatFloat(rate, 'f', 0, 64))
	case rate >= 10:
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return strconv.FormatFloat(rate, 'g', 3, 64)
}

// groupDigits returns digits with a comma before each three of them.
func groupDigits(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
