package certify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Finding is one thing that is wrong with an authorizer.
type Finding struct {
	// Reason is its short name, Level what it costs.
	Reason string `json:"reason"`
	Level  Level  `json:"level"`
	// Blame is whose fault it is, as far as the reference authorizer shows that: the
	// same was asked of it. Empty is not found out.
	Blame verdicts.Blame `json:"blame,omitempty"`
	// Count is how many answers show it, Examples some of them.
	Count    int      `json:"count"`
	Examples []string `json:"examples"`
}

// maxExamples is how many are named.
const maxExamples = 3

// wholly are faults of the whole server: behind them nothing can be judged.
var wholly = []string{
	"cannot-connect", "plain-http", "server-certificate-untrusted", "server-certificate-expired",
	"server-certificate-for-another-host", "client-certificate-expired", "client-certificate-refused",
}

// blamable are failures that may have the cause which a vector is about.
var blamable = []string{"http-status", "closes-the-connection", "does-not-answer-in-time", "answer-unreadable"}

// judge says what is wrong with an answer: nothing, or several things.
func judge(v Vector, a Answer) (reasons []string) {
	if v.Expect == "" {
		return judgeRefusal(a)
	}
	add := func(wrong bool, reason string) {
		if wrong {
			if v.Blame != "" && slices.Contains(blamable, reason) {
				reason = v.Blame
			}
			reasons = append(reasons, reason)
		}
	}
	add(a.Fault != "", a.Fault)
	add(a.Check != concurrency && !isLoad(a.Check) && a.Millis > slow.Milliseconds() && a.Fault == "", "answers-slowly")
	if a.Fault != "" {
		return reasons
	}
	add(a.Kind != "", "wrong-kind")
	add(a.APIVersion != "", "wrong-api-version")
	add(!a.Status, "no-status")
	add(a.Allowed && a.Denied, "allowed-and-denied")
	add(len(a.Unknown) > 0, "conditions-not-asked-for")
	add(a.EvalError, "evaluation-error")
	add(a.Foreign, "echoes-another-review")
	switch got := a.decision(); {
	case got == v.Expect || a.Allowed && a.Denied || !a.Status:
	case got == scenarios.Deny && v.Expect == scenarios.NoOpinion:
		add(true, "denies-what-is-not-granted")
	default:
		add(true, cmp.Or(v.Blame, v.Reason))
	}
	return reasons
}

// judgeRefusal is about requests that are no reviews: anything but a crash will
// do, as long as nothing is allowed.
func judgeRefusal(a Answer) []string {
	switch {
	case a.Allowed:
		return []string{"bad-request-accepted"}
	case a.Fault == "http-status" && a.HTTP < 500, a.Fault == "", a.Fault == "answer-unreadable" && a.HTTP < 500:
		return nil
	}
	return []string{"bad-request-breaks"}
}

// reasonOf is what a wrong answer is called in a check that repeats vectors in
// other circumstances.
var reasonOf = map[string]string{concurrency: "wrong-under-concurrency", drift: "drifts"}

func otherReason(check string) string {
	if isLoad(check) {
		return "wrong-under-load"
	}
	return reasonOf[check]
}

// findings collects what is wrong, by reason, level and blame.
type findings map[[3]string]*Finding

func (all findings) add(reason string, level Level, blame verdicts.Blame, example string) {
	key := [3]string{reason, string(level), string(blame)}
	f := all[key]
	if f == nil {
		f = &Finding{Reason: reason, Level: level, Blame: blame}
		all[key] = f
	}
	if f.Count++; len(f.Examples) < maxExamples {
		f.Examples = append(f.Examples, example)
	}
}

// judgeAll groups what is wrong by reason, level and blame.
func (b *Book) judgeAll(answers []Answer) ([]Finding, error) {
	if err := b.cellOf(answers); err != nil {
		return nil, err
	}
	found, wrong, controls := findings{}, map[string]bool{}, b.controls(answers)
	rates, _, _ := b.rates(ownOnly(answers))
	for _, a := range answers {
		switch {
		case a.Control || a.Stage != nil || excused(a, rates):
			continue
		case a.Seen != nil:
			if err := b.addSeen(found, controls, a); err != nil {
				return nil, err
			}
			continue
		}
		v, ok := b.byID[a.Vector]
		if !ok {
			return nil, fmt.Errorf("the evidence is about %q, which seed %d does not have", a.Vector, b.Policy.Seed)
		}
		reasons, level := judge(v, a), levelOf(v, a)
		again := a.Check != plain && wrong[v.ID] || wrong[v.Base]
		for _, reason := range reasons {
			if again && reason != "answers-slowly" {
				continue
			}
			blame := controls.of(a, reason)
			if other := otherReason(a.Check); other != "" && reason != "answers-slowly" && !slices.Contains(wholly, reason) {
				reason = other
			}
			found.add(reason, level, blame, describe(v, a))
		}
		wrong[v.ID] = wrong[v.ID] || len(reasons) > 0
		if a.Opened > maxOpened {
			found.add("no-keep-alive", Robust, controls.of(a, ""), fmt.Sprintf("%s: %d connections for %d reviews", a.Check, a.Opened, keptAlive))
		}
	}
	for _, r := range rates {
		for reason, text := range r.findings() {
			found.add(reason, Load, controls.ofRate(r, reason), text)
		}
	}
	return found.sorted(), nil
}

// addSeen judges what an API server did.
func (b *Book) addSeen(found findings, controls controls, a Answer) error {
	if a.Seen.Cell != nil || a.Seen.NotSupported != "" {
		return nil
	}
	j, err := b.judgeSeen(a)
	if err == nil && j.reason != "" {
		found.add(j.reason, j.level, controls.of(a, j.reason), j.text)
	}
	if err == nil && j.unclear {
		found.add("could-not-be-judged", j.level, cmp.Or(controls.of(a, j.reason), verdicts.BlameEnvironment), j.text)
	}
	return err
}

// levelOf is what an answer counts for.
func levelOf(v Vector, a Answer) Level {
	switch {
	case isLoad(a.Check):
		return Load
	case a.Check != plain:
		return Robust
	}
	return v.Level
}

// sorted are the findings, those of the first levels first.
func (all findings) sorted() []Finding {
	var out []Finding
	for _, f := range all {
		out = append(out, *f)
	}
	order := allLevels()
	slices.SortFunc(out, func(x, y Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(order, x.Level), slices.Index(order, y.Level)), cmp.Compare(y.Count, x.Count),
			strings.Compare(x.Reason, y.Reason), strings.Compare(string(x.Blame), string(y.Blame)))
	})
	return out
}

// describe is a review with its answer, on one line.
func describe(v Vector, a Answer) string {
	got := string(a.decision())
	if a.Fault != "" {
		got = a.Fault
		if a.HTTP != 0 {
			got += fmt.Sprintf(" %d", a.HTTP)
		}
	}
	text := fmt.Sprintf("%s: a request that is no review", v.ID)
	if r := v.Spec.ResourceAttributes; r != nil {
		text = fmt.Sprintf("%s: %q %q %s/%s %q in %q", v.ID, word(v.Spec.User), word(r.Verb), r.Group, r.Resource+sub(r.Subresource), word(r.Name), r.Namespace)
	} else if n := v.Spec.NonResourceAttributes; n != nil {
		text = fmt.Sprintf("%s: %q %q %s", v.ID, word(v.Spec.User), word(n.Verb), n.Path)
	}
	return fmt.Sprintf("%s: expected %s, got %s", text, cmp.Or(string(v.Expect), "a refusal"), got)
}

func sub(s string) string {
	if s != "" {
		return "/" + s
	}
	return ""
}

// planned is how many answers each check of each level needs. A level of which
// anything is missing is not granted.
func (b *Book) planned() map[Level]map[string]int {
	out := map[Level]map[string]int{Core: {}, TranscriptSafe: {}, Robust: {}}
	for _, v := range b.All() {
		out[v.Level][plain]++
	}
	out[Robust][http1], out[Robust][http2] = keptAlive, keptAlive
	out[Robust][concurrency], out[Robust][drift] = 2*concurrent, drifting
	return out
}

// Result is what became of a level.
type Result struct {
	Level   Level `json:"level"`
	Granted bool  `json:"granted"`
	// Reviews is how many were judged, of Planned.
	Reviews int `json:"reviews"`
	Planned int `json:"planned"`
	// Findings is how many kinds of them stand against the level.
	Findings int `json:"findings"`
	Measured
}

// levels grants each level of which all ran and nothing is wrong.
func (b *Book) levels(answers []Answer, findings []Finding) []Result {
	distinct := map[Level]map[string]int{Core: {}, TranscriptSafe: {}, Robust: {}}
	seen := map[string]bool{}
	for _, a := range answers {
		if a.Control || a.Seen != nil || isLoad(a.Check) {
			continue
		}
		level := b.byID[a.Vector].Level
		if a.Check != plain {
			distinct[Robust][a.Check]++
		} else if !seen[a.Vector] {
			seen[a.Vector] = true
			distinct[level][plain]++
		}
	}
	planned := b.planned()
	var out []Result
	for _, level := range Levels() {
		r := Result{Level: level}
		whole := true
		for _, check := range slices.Sorted(maps.Keys(planned[level])) {
			r.Planned += planned[level][check]
			r.Reviews += distinct[level][check]
			whole = whole && distinct[level][check] >= planned[level][check]
		}
		out = append(out, r.conclude(whole, findings))
	}
	return append(out, b.measured(answers, findings)...)
}
