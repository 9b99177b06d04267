package granular

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/verdicts"
)

// seenFile has recorded observations of trials, by kind of enforcement and the ID of the trial.
const seenFile = "testdata/seen.json"

func readSeen(t *testing.T) map[string]map[string]*TrialEvidence {
	t.Helper()
	raw, err := os.ReadFile(seenFile)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]map[string]*TrialEvidence
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func findTrial(t *testing.T, id string) trial {
	t.Helper()
	all := trialsOf(builtIn(t))
	i := slices.IndexFunc(all, func(one trial) bool { return one.ID() == id })
	if i < 0 {
		t.Fatalf("there is no %s", id)
	}
	return all[i]
}

// TestJudge checks that nothing is wrong with recorded observations of correct enforcers.
func TestJudge(t *testing.T) {
	for kind, seen := range readSeen(t) {
		for id, one := range seen {
			if r := newResult(by(t, kind), findTrial(t, id), one); r.Verdict != verdicts.Passed || r.Judged < 8 {
				t.Errorf("%s, %s: %+v", kind, id, r)
			}
		}
	}
}

// TestJudgeNotices checks that the judge finds each of many changes in recorded observations.
func TestJudgeNotices(t *testing.T) {
	const own, foreign = "kep-3617/story-1/labels/own", "kep-3617/story-1/labels/foreign"
	const update = "kep-3617/story-2/update/admin"
	for name, c := range map[string]struct {
		kind, id string
		change   func(*TrialEvidence)
		want     string
	}{
		"another code":             {Reference, own, func(s *TrialEvidence) { s.Code = 418 }, "code 418, expected 200"},
		"another message":          {Reference, foreign, func(s *TrialEvidence) { s.Message += "!" }, "message "},
		"nothing was stored":       {Reference, own, func(s *TrialEvidence) { s.After = s.Before }, "the stored object: changed false, expected true"},
		"something else stored":    {Reference, own, func(s *TrialEvidence) { s.After["data"] = map[string]any{"x": "y"} }, "the stored object is not what the request makes of it"},
		"no dry run":               {Reference, own, func(s *TrialEvidence) { s.Result = nil }, noDryRun},
		"no decision":              {Reference, own, func(s *TrialEvidence) { s.Decisions = nil }, "the enforcer did not decide, or more than once"},
		"two decisions":            {Reference, own, func(s *TrialEvidence) { s.Decisions = append(s.Decisions, s.Decisions[0]) }, "the enforcer did not decide, or more than once"},
		"about another name":       {Reference, own, func(s *TrialEvidence) { s.Decisions[0].Checks[0].Name = "another" }, "the enforcer says that it asked"},
		"not granular":             {Reference, own, func(s *TrialEvidence) { s.Decisions[0].Granular = false }, "granular false, and its checks do not"},
		"about another verb":       {Reference, own, func(s *TrialEvidence) { s.Decisions[0].Verb = "get" }, "the enforcer says get"},
		"nothing is missing":       {Reference, foreign, func(s *TrialEvidence) { s.Decisions[0].Missing = nil }, "is missing, and answers 403"},
		"something else missing":   {Reference, foreign, func(s *TrialEvidence) { s.Decisions[0].Missing.Verb = "granular:x" }, "is missing, and answers 403"},
		"missing and allowed":      {Reference, own, func(s *TrialEvidence) { s.Decisions[0].Missing = readSeen(t)[Reference][foreign].Decisions[0].Missing }, "is missing, and answers 200"},
		"more fields":              {Reference, own, func(s *TrialEvidence) { s.Decisions[0].Fields = 9 }, "the enforcer says that 9 fields change, and there are"},
		"fewer fields":             {Reference, own, func(s *TrialEvidence) { s.Decisions[0].Fields = 0 }, "the enforcer says that 0 fields change, the model that"},
		"a check less":             {Reference, own, func(s *TrialEvidence) { s.Decisions[0].Checks = s.Decisions[0].Checks[1:] }, "checks "},
		"another answer":           {Reference, foreign, func(s *TrialEvidence) { s.Decisions[0].Checks[2].Allowed = true }, "model: "},
		"a review less":            {Reference, own, func(s *TrialEvidence) { s.Reviews = s.Reviews[1:] }, "the authorizer was asked"},
		"about another user":       {Reference, own, func(s *TrialEvidence) { s.Reviews[0].Spec.UID = "0" }, "and the request was of"},
		"a review less, in server": {Policies, update, func(s *TrialEvidence) { s.Reviews = s.Reviews[1:] }, "checks "},
		"about another version":    {Policies, update, func(s *TrialEvidence) { s.Reviews[0].Spec.ResourceAttributes.Version = "v9" }, "the authorizer was asked"},
	} {
		t.Run(name, func(t *testing.T) {
			seen := readSeen(t)[c.kind][c.id]
			c.change(seen)
			r := newResult(by(t, c.kind), findTrial(t, c.id), seen)
			problems := append([]string{r.Reason}, r.Details...)
			if r.Verdict != verdicts.Failed || !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, c.want) }) {
				t.Errorf("%s, %q, without %q", r.Verdict, problems, c.want)
			}
		})
	}
}
