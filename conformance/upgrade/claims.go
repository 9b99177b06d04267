package upgrade

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/upgradepath"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Claim is a statement about a stage that follows from its evidence, such as `objects-unchanged`.
type Claim string

// The claims about a stage.
const (
	// ClaimObjects: every object that was made reads byte for byte as on the stage it was made on.
	ClaimObjects Claim = "objects-unchanged"
	// ClaimTokens: every token that was issued on an earlier stage authenticates, and is the same one.
	ClaimTokens Claim = "tokens-work"
	// ClaimWrites: roles, bindings and accounts that are written on the stage become what was sent, and grant what they say.
	ClaimWrites Claim = "writes-take-effect"
	// ClaimReadBack: what earlier stages wrote reads byte for byte as it did there, and their tokens authenticate.
	ClaimReadBack Claim = "writes-read-back"
	// ClaimNoConstrained: at an API server without the feature no access review has a verb of it.
	ClaimNoConstrained Claim = "no-constrained-review"
	// ClaimWorkloads: everybody who worked before the API server was replaced was answered rightly by the new one.
	ClaimWorkloads Claim = "workloads-go-on"
	// ClaimPods: the pods that work through the whole path are the same ones, and none of their containers was started again.
	ClaimPods Claim = "pods-live-on"
	// ClaimPodAnswers: these pods were answered as their permissions are, ClaimPodEvents: and the audit events say the same.
	ClaimPodAnswers Claim = "pods-answered-as-granted"
	ClaimPodEvents  Claim = "pods-audited"
	// ClaimAnswers: every request while API servers were replaced was answered as by one of the two versions, or not at all.
	ClaimAnswers Claim = "answers-right"
)

// ClaimItem is a claim that is judged about a stage.
type ClaimItem struct {
	Claim Claim
	// Cell is the API server that the claim is about: that of the stage, or one that ran beside it.
	Cell string
	Fate conformance.Fate
	// Why says in one line why it is not judged.
	Why string
}

// claimsFolder begins the names of cases that are claims.
const claimsFolder = "claims/"

// name returns the name of the case.
func (c ClaimItem) name(stage string) string {
	name := claimsFolder + string(c.Claim)
	if c.Cell != stage {
		name += "-at-" + c.Cell
	}
	return name
}

// planClaims adds to each stage what is judged about it as a whole.
func planClaims(p *upgradepath.Path, stages []*StagePlan) {
	running := map[int]*StagePlan{} // by server
	hadToken := map[string]bool{}   // by setup
	for _, s := range stages {
		s.claim(ClaimObjects, s)
		s.claim(ClaimWrites, s)
		if s != stages[0] {
			s.claim(ClaimReadBack, s)
		}
		if s.usesTokens(hadToken) {
			s.claim(ClaimTokens, s)
		}
		running[s.Server] = s
		if !p.HasOtherGate() {
			s.claimNoConstrained(running)
		}
		s.claimWorkloads()
	}
}

// claim adds a claim that is judged at the stage, about the API server of this stage or of another that still runs.
func (s *StagePlan) claim(c Claim, subject *StagePlan) {
	s.Claims = append(s.Claims, ClaimItem{Claim: c, Cell: subject.Name(), Fate: conformance.Run})
}

// claimNoConstrained adds, for each API server that runs with the feature off, that it impersonates nobody by it.
func (s *StagePlan) claimNoConstrained(running map[int]*StagePlan) {
	if s.isOff() {
		s.claim(ClaimNoConstrained, s)
	}
	for _, n := range slices.Sorted(maps.Keys(running)) {
		if other := running[n]; other != s && other.isOff() {
			s.claim(ClaimNoConstrained, other)
		}
	}
}

// claimWorkloads adds what is claimed of those who work while API servers are replaced.
func (s *StagePlan) claimWorkloads() {
	if s.flows() {
		s.claim(ClaimAnswers, s)
		s.claim(ClaimWorkloads, s)
	}
	if s.hasPods() {
		for _, c := range podClaims() {
			s.claim(c, s)
		}
	}
}

// isOff reports whether the feature is off on the stage.
func (s *StagePlan) isOff() bool { return server.ExpectedFacts(s.Target).Gate == scenarios.GateOff }

// usesTokens reports whether a token that an earlier stage has seen is used on this one. had has the setups with one.
func (s *StagePlan) usesTokens(had map[string]bool) (uses bool) {
	for name, scenario := range s.scenario {
		for _, r := range scenario.Requestors {
			if r.ServiceAccount != nil {
				uses = uses || had[name]
				had[name] = true
			}
		}
	}
	return uses
}

// cases returns the cases of the stage: its scenarios, and the claims about it.
func (s *StagePlan) cases() []product.Case {
	all := s.CellPlan.Cases(conformance.Labeller{})
	for _, item := range s.Claims {
		c := product.NewCase(s.Name(), item.name(s.Name()), scenarios.Core, "sig-auth", string(scenarios.Core), "claim")
		if item.Fate != conformance.Run {
			c.NotRun = &product.NotRun{Cause: reports.CauseUser, Why: item.Why}
		}
		all = append(all, c)
	}
	return all
}

// judgeClaim returns the verdict on a claim about a stage.
func (p *Plan) judgeClaim(stage *StagePlan, item ClaimItem, view record.View) reports.Result {
	if slices.Contains(podClaims(), item.Claim) {
		return p.judgePods(stage, item.Claim, view)
	}
	r := reports.Result{Level: scenarios.Core, Judged: 1}
	e, err := readStage(view, stage.Name())
	if err != nil {
		r.Verdict, r.Blame, r.Reason, r.Judged = verdicts.Invalid, verdicts.BlameEnvironment, "the stage was not reached, or broke off", 0
		return r
	}
	r.Evidence = []string{view.EvidenceFile(stageKey(stage.Name()))}
	var detail string
	switch item.Claim {
	case ClaimObjects:
		r.Verdict, detail = p.judgeObjects(stage, view)
	case ClaimWrites:
		r.Verdict, detail = judgeWrites(e.Writes)
	case ClaimReadBack:
		r.Verdict, detail = p.judgeReadBack(stage, view)
	case ClaimTokens:
		r.Verdict, detail = p.judgeTokens(stage, view)
	case ClaimNoConstrained:
		verbs, place := e.Verbs, ""
		if item.Cell != stage.Name() {
			verbs, place = e.Neighbours[item.Cell], " at "+item.Cell
		}
		r.Verdict, detail = judgeVerbs(verbs, place)
	case ClaimAnswers:
		flow := p.judgeFlow(e)
		r.Verdict, detail = flow.verdict(), flow.describe()
	case ClaimWorkloads:
		r.Verdict, detail = p.judgeFlow(e).judgeWorkloads(stage)
	}
	if r.Verdict == verdicts.Passed {
		r.Details = []string{detail}
	} else {
		r.Reason = detail
	}
	if r.Verdict == verdicts.Failed {
		r.Blame = verdicts.BlameAPIServer
	}
	return r
}

// until returns the records of the stages that were reached, up to and with one.
func (p *Plan) until(last *StagePlan, view record.View) (all []*StageRecord) {
	for _, stage := range p.stages {
		if e, err := readStage(view, stage.Name()); err == nil {
			all = append(all, e)
		}
		if stage == last {
			return all
		}
	}
	return all
}

// judgeObjects compares the objects that were read on a stage with how they read when they were first seen.
func (p *Plan) judgeObjects(stage *StagePlan, view record.View) (v verdicts.Verdict, detail string) {
	records := p.until(stage, view)
	now := records[len(records)-1].Objects
	first := map[string]string{} // by path
	for _, e := range records[:len(records)-1] {
		for _, o := range e.Objects {
			if _, known := first[o.Path]; !known {
				first[o.Path] = o.Body
			}
		}
	}
	changed, comparisons := compareObjects(first, now)
	switch {
	case len(changed) > 0:
		return verdicts.Failed, reports.Plural(len(changed), "object") + " changed; the first: " + changed[0]
	case len(now) == 0:
		return verdicts.Invalid, "no object was read"
	case comparisons == 0:
		return verdicts.Passed, reports.Plural(len(now), "object") + " made and read"
	}
	return verdicts.Passed, reports.Plural(comparisons, "object") + " the same, byte for byte"
}

// compareObjects says what changed, and counts what was compared and did not.
func compareObjects(first map[string]string, now []ObjectState) (changed []string, comparisons int) {
	seen := map[string]bool{}
	for _, o := range now {
		seen[o.Path] = true
		before, known := first[o.Path]
		switch {
		case !known:
		case before != o.Body:
			changed = append(changed, fmt.Sprintf("%s: %s", o.Path, describeChange(before, o.Body)))
		default:
			comparisons++
		}
	}
	for _, path := range slices.Sorted(maps.Keys(first)) {
		if !seen[path] {
			changed = append(changed, path+" is gone")
		}
	}
	return changed, comparisons
}

// describeChange says how an object differs from what it was.
func describeChange(before, after string) string {
	var a, b any
	wasJSON := json.Unmarshal([]byte(before), &a) == nil
	isJSON := json.Unmarshal([]byte(after), &b) == nil
	if !wasJSON || !isJSON {
		return "it is not JSON any more"
	}
	at, x, y := reports.FirstChange(a, b)
	return fmt.Sprintf("%s was %s, is %s", cmp.Or(at, "the order of fields"), x, y)
}

// judgeTokens compares the IDs of the tokens that requestors have on a stage with those they had when they were first
// seen. A token that does not authenticate has failed its scenario already: this is about another one in its place.
func (p *Plan) judgeTokens(last *StagePlan, view record.View) (v verdicts.Verdict, detail string) {
	first := map[string]string{} // by setup and user
	for _, stage := range p.stages {
		sameCount, others := stage.compareTokens(first, view)
		if stage == last {
			return judgeSameTokens(sameCount, others)
		}
	}
	return judgeSameTokens(0, nil)
}

func judgeSameTokens(sameCount int, others []string) (v verdicts.Verdict, detail string) {
	switch {
	case len(others) > 0: // in no order
		return verdicts.Failed, slices.Min(others)
	case sameCount > 0:
		return verdicts.Passed, reports.Plural(sameCount, "token") + " of an earlier stage, the same ones"
	}
	return verdicts.Skipped, "no token of an earlier stage authenticated: its scenario says why"
}

// compareTokens adds the tokens of a stage that were not seen before, and says which were others before.
func (s *StagePlan) compareTokens(first map[string]string, view record.View) (sameCount int, others []string) {
	for _, scenario := range s.Runs() {
		e, err := conformance.ReadEvidence(view, s.Name(), scenario.ID)
		if err != nil {
			continue
		}
		for user, id := range listCredentials(e) {
			key := scenario.Setup + " " + user
			before, known := first[key]
			switch {
			case !known:
				first[key] = id
			case before != id:
				others = append(others, fmt.Sprintf("%s has the token %s, not %s", user, id, before))
			default:
				sameCount++
			}
		}
	}
	return sameCount, others
}

// listCredentials returns the IDs of the tokens that were used, by user.
func listCredentials(e *verdicts.Evidence) map[string]string {
	ids := map[string]string{}
	for i := range e.Steps {
		event := verdicts.AuditOf(&e.Steps[i])
		if event == nil {
			continue
		}
		if id := event.User.Extra[user.CredentialIDKey]; len(id) == 1 {
			ids[event.User.Username] = id[0]
		}
	}
	return ids
}

// judgeVerbs judges the access reviews of an API server without the feature.
func judgeVerbs(verbs map[string]int, place string) (v verdicts.Verdict, detail string) {
	for _, verb := range slices.Sorted(maps.Keys(verbs)) {
		if isConstrained(verb) {
			return verdicts.Failed, fmt.Sprintf("%s with the verb %s%s", reports.Plural(verbs[verb], "review"), verb, place)
		}
	}
	total := seq.Sum(slices.Collect(maps.Values(verbs)), func(n int) int { return n })
	if total == 0 {
		return verdicts.Invalid, "no review arrived at all" + place
	}
	return verdicts.Passed, fmt.Sprintf("none of %s%s", reports.Plural(total, "review"), place)
}

// isConstrained reports whether a verb is one of KEP-5284.
func isConstrained(verb string) bool {
	return strings.HasPrefix(verb, "impersonate:") || strings.HasPrefix(verb, "impersonate-on:")
}
