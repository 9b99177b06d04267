package certify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Finding is one thing that is wrong with an authorizer.
type Finding struct {
	Reason string             `json:"reason"` // its short name, Level what it costs
	Level  CertificationLevel `json:"level"`
	// Blame is whose fault it is, as far as the reference, which was asked the same, shows it. Empty is not found out.
	Blame verdicts.Blame `json:"blame,omitempty"`
	// Advice says that the text only recommends it: it costs no level.
	Advice   bool     `json:"advice,omitempty"`
	Count    int      `json:"count"` // how many answers show it, Examples some of them
	Examples []string `json:"examples"`
}

const maxExamples = 3

// unreachable are faults of the whole server: behind them nothing can be judged.
var unreachable = []string{
	"cannot-connect", "plain-http", "tls-handshake-hangs", "server-certificate-untrusted", "server-certificate-expired",
	"server-certificate-for-another-host", "client-certificate-expired", "client-certificate-refused",
}

// blamable are failures that may have the cause which a vector is about.
var blamable = []string{"http-status", "closes-the-connection", "does-not-answer-in-time", "answer-unreadable"}

func judge(v Question, a Answer) (reasons []string) {
	if v.Expect == "" {
		return judgeRefusal(v, a)
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

// judgeRefusal is about requests that are not reviews: anything but a crash will do, as long as nothing is allowed.
func judgeRefusal(v Question, a Answer) []string {
	switch {
	case a.Allowed:
		return []string{v.Reason}
	case a.Fault == "", a.HTTP > 0 && a.HTTP < 500 && slices.Contains([]string{"http-status", "answer-unreadable", "answers-html", "redirects"}, a.Fault):
		return nil
	case slices.Contains(unreachable, a.Fault):
		return []string{a.Fault}
	}
	return []string{"bad-request-breaks"}
}

// otherReason is what a wrong answer is called in a check that repeats vectors in other circumstances.
func otherReason(check string) string {
	if isLoad(check) {
		return "wrong-under-load"
	}
	return map[string]string{concurrency: "wrong-under-concurrency", drift: "drifts"}[check]
}

// Findings collects what is wrong, by reason, level, blame and whether it is advice.
type Findings map[findingKey]*Finding

type findingKey struct {
	reason string
	level  CertificationLevel
	blame  verdicts.Blame
	advice bool
}

// Add counts a finding, whose example is kept if it is one of the first.
func (all Findings) Add(f Finding, example string) {
	key := findingKey{f.Reason, f.Level, f.Blame, f.Advice}
	all[key] = cmp.Or(all[key], &f)
	known := all[key]
	if known.Count++; len(known.Examples) < maxExamples {
		known.Examples = append(known.Examples, example)
	}
}

// Sorted are the findings in the order of levels.
func (all Findings) Sorted(order []CertificationLevel) []Finding {
	out := seq.Map(slices.Collect(maps.Values(all)), func(f *Finding) Finding { return *f })
	slices.SortFunc(out, func(x, y Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(order, x.Level), slices.Index(order, y.Level)), cmp.Compare(y.Count, x.Count),
			strings.Compare(x.Reason, y.Reason), strings.Compare(string(x.Blame), string(y.Blame)), cmp.Compare(fmt.Sprint(x.Advice), fmt.Sprint(y.Advice)))
	})
	return out
}

// versionsCheck is on a line of the evidence that says which versions were asked, if not all.
const versionsCheck = "review-versions"

func v1Only(answers []Answer) bool {
	return slices.ContainsFunc(answers, func(a Answer) bool { return a.Check == versionsCheck && a.Vector == "v1" })
}

// Judge says what the answers show.
func (b *Plan) Judge(answers []Answer) (*Certification, error) {
	if err := b.holdLines(answers); err != nil {
		return nil, err
	}
	answers, err := b.reread(answers)
	if err != nil {
		return nil, err
	}
	findings, err := b.judgeAll(answers)
	if err != nil {
		return nil, err
	}
	c := &Certification{
		Kind: DirectKind, Mode: "direct", Seed: b.Policy.Seed, SuiteDigest: b.Digest, PolicyDigest: b.Policy.Digest(),
		Results: b.levels(answers, findings), Findings: findings,
	}
	if v1Only(answers) {
		c.ReviewVersions = []string{"v1"}
	}
	if slices.ContainsFunc(c.Results, func(r LevelResult) bool { return r.Level == InCluster }) {
		c.Mode = "direct and in-cluster"
	}
	return c.Grant(), nil
}

// reread are the answers with what their raw text says, and nothing else.
func (b *Plan) reread(answers []Answer) ([]Answer, error) {
	out := slices.Clone(answers)
	for i, a := range out {
		v, known := b.vector(a.Vector)
		if a.Stage != nil || a.Seen != nil || !known {
			continue
		}
		var err error
		if out[i], err = a.reread(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// judgeAll groups what is wrong by reason, level and blame.
func (b *Plan) judgeAll(answers []Answer) ([]Finding, error) {
	if err := b.cellOf(answers); err != nil {
		return nil, err
	}
	found, wrong, controls := Findings{}, map[string]*Finding{}, b.controls(answers)
	rates, _, _ := b.rates(ownOnly(answers))
	for _, a := range answers {
		switch {
		case a.Control || a.Stage != nil || a.Check == versionsCheck || excused(a, rates):
			continue
		case a.Seen != nil:
			if err := b.addSeen(found, controls, a); err != nil {
				return nil, err
			}
			continue
		}
		v, ok := b.vector(a.Vector)
		if !ok {
			return nil, fmt.Errorf("the evidence is about %q, which seed %d does not have", a.Vector, b.Policy.Seed)
		}
		reasons, level := judge(v, a), levelOf(v, a)
		cause := wrong[v.Base]
		for _, reason := range reasons {
			if reason != "answers-slowly" && (cause != nil || a.Check != plain && wrong[v.ID] != nil) {
				if cause != nil && a.Check == plain {
					found.Add(*cause, b.describe(v, a)) // it is of the same cause
				}
				continue
			}
			f := Finding{Reason: reason, Level: level, Blame: controls.of(a, reason)}
			if other := otherReason(a.Check); other != "" && a.Fault == "" && reason != "answers-slowly" {
				f.Reason = other
			}
			found.Add(f, b.describe(v, a))
			if wrong[v.ID] == nil && reason != "answers-slowly" {
				wrong[v.ID] = &f
			}
		}
		if a.Opened > maxOpened {
			found.Add(Finding{Reason: "no-keep-alive", Level: Robust, Blame: controls.of(a, "")}, fmt.Sprintf("%s: %d connections for %d reviews", a.Check, a.Opened, keptAlive))
		}
	}
	for _, r := range rates {
		for reason, text := range r.findings() {
			found.Add(Finding{Reason: reason, Level: levelOf(Question{}, Answer{Check: r.check()}), Blame: controls.ofRate(r, reason)}, text)
		}
	}
	return found.Sorted(append(Levels(), Load, Soak, InCluster, Revocation)), nil
}

func (b *Plan) addSeen(found Findings, controls controls, a Answer) error {
	if a.Seen.Cell != nil || a.Seen.NotSupported != "" {
		return nil
	}
	j, err := b.judgeSeen(a)
	if err == nil && j.reason != "" {
		found.Add(Finding{Reason: j.reason, Level: j.level, Blame: controls.of(a, j.reason)}, j.text)
	}
	if err == nil && j.unclear {
		found.Add(Finding{Reason: "could-not-be-judged", Level: j.level, Blame: cmp.Or(controls.of(a, j.reason), verdicts.BlameEnvironment)}, j.text)
	}
	return err
}

func levelOf(v Question, a Answer) CertificationLevel {
	switch {
	case a.Check == soak:
		return Soak
	case isLoad(a.Check):
		return Load
	case a.Check != plain && a.Check != first:
		return Robust
	}
	return v.Level
}

// planned is how many answers each check of a level needs for it to be granted. repeated is what askedAgain returns.
func (b *Plan) planned(v1Only bool, repeated map[string][]Question) map[CertificationLevel]map[string]int {
	out := map[CertificationLevel]map[string]int{Core: {}, NoOvergrant: {}, Robust: {}}
	for _, v := range b.All() {
		if !v1Only || v.Form != v1beta1 {
			out[v.Level][plain]++
		}
	}
	for check, all := range repeated {
		out[repeatedFor(check)][check] = len(all)
	}
	return out
}

// repeatedFor is the level of which a check of askedAgain is a part.
func repeatedFor(check string) CertificationLevel {
	if check == first {
		return Core
	}
	return Robust
}

// LevelResult is what became of a level.
type LevelResult struct {
	Level    CertificationLevel `json:"level"`
	Granted  bool               `json:"granted"`
	Reviews  int                `json:"reviews"` // how many were judged, of Planned
	Planned  int                `json:"planned"`
	Findings int                `json:"findings"` // how many kinds of them stand against the level
	// Exchanges is how many requests the reviews took, where one takes several.
	Exchanges int `json:"exchanges,omitempty"`
	Measured
}

// levels grants each level of which all ran and nothing is wrong.
func (b *Plan) levels(answers []Answer, findings []Finding) []LevelResult {
	distinct := map[CertificationLevel]map[string]int{Core: {}, NoOvergrant: {}, Robust: {}}
	seen, repeated := map[string]bool{}, b.askedAgain()
	for _, a := range answers {
		if a.Control || a.Seen != nil || isLoad(a.Check) || a.Check == versionsCheck {
			continue
		}
		v, _ := b.vector(a.Vector)
		if of := distinct[repeatedFor(a.Check)]; a.Check != plain {
			if n := of[a.Check]; n < len(repeated[a.Check]) && repeated[a.Check][n].ID == a.Vector { // an answer to another question does not count
				of[a.Check]++
			}
		} else if !seen[a.Vector] {
			seen[a.Vector] = true
			distinct[v.Level][plain]++
		}
	}
	planned := b.planned(v1Only(answers), repeated)
	var out []LevelResult
	for _, level := range Levels() {
		r := LevelResult{Level: level}
		complete := true
		for _, check := range slices.Sorted(maps.Keys(planned[level])) {
			r.Planned += planned[level][check]
			r.Reviews += distinct[level][check]
			complete = complete && distinct[level][check] >= planned[level][check]
		}
		out = append(out, r.Conclude(complete, findings))
	}
	return append(out, b.measured(answers, findings)...)
}
