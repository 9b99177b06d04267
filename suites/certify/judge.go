package certify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// Finding is one thing that is wrong with an authorizer.
type Finding struct {
	// Reason is its short name, Level what it costs.
	Reason string `json:"reason"`
	Level  Level  `json:"level"`
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
	add(a.Check != concurrency && a.Millis > slow.Milliseconds() && a.Fault == "", "answers-slowly")
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

// judgeAll groups what is wrong by reason and level.
func (b *Book) judgeAll(answers []Answer) ([]Finding, error) {
	type key struct {
		reason string
		level  Level
	}
	found, wrong := map[key]*Finding{}, map[string]bool{}
	add := func(reason string, level Level, example string) {
		f := found[key{reason, level}]
		if f == nil {
			f = &Finding{Reason: reason, Level: level}
			found[key{reason, level}] = f
		}
		if f.Count++; len(f.Examples) < maxExamples {
			f.Examples = append(f.Examples, example)
		}
	}
	for _, a := range answers {
		v, ok := b.byID[a.Vector]
		if !ok {
			return nil, fmt.Errorf("the evidence is about %q, which seed %d does not have", a.Vector, b.Policy.Seed)
		}
		reasons, level := judge(v, a), v.Level
		if a.Check != plain {
			level = Robust
		}
		again := a.Check != plain && wrong[v.ID] || wrong[v.Base]
		for _, reason := range reasons {
			if again && reason != "answers-slowly" {
				continue
			}
			if other := reasonOf[a.Check]; other != "" && reason != "answers-slowly" && !slices.Contains(wholly, reason) {
				reason = other
			}
			add(reason, level, describe(v, a))
		}
		wrong[v.ID] = wrong[v.ID] || len(reasons) > 0
		if a.Opened > maxOpened {
			add("no-keep-alive", Robust, fmt.Sprintf("%s: %d connections for %d reviews", a.Check, a.Opened, keptAlive))
		}
	}
	var out []Finding
	for _, f := range found {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(x, y Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(Levels(), x.Level), slices.Index(Levels(), y.Level)), cmp.Compare(y.Count, x.Count), strings.Compare(x.Reason, y.Reason))
	})
	return out, nil
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
}

// levels grants each level of which all ran and nothing is wrong.
func (b *Book) levels(answers []Answer, findings []Finding) []Result {
	distinct := map[Level]map[string]int{Core: {}, TranscriptSafe: {}, Robust: {}}
	seen := map[string]bool{}
	for _, a := range answers {
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
		for _, f := range findings {
			if f.Level == level {
				r.Findings++
			}
		}
		r.Granted = whole && r.Findings == 0 && r.Planned > 0
		out = append(out, r)
	}
	return out
}
