package reports

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

const pathDir = "path"

// PathReport is what an upgrade path's report has besides a run's: its cells are the stages, in order, on one etcd.
type PathReport struct {
	Name        string `json:"name"`                  // that of the path file, or the path as it was written
	Description string `json:"description,omitempty"` // that of the path file
	// HighAvailability: two API servers behind a balancer (run).
	HighAvailability bool `json:"highAvailability,omitempty"`
	// Stages are in the order of the cells (run, but for what is marked derived).
	Stages []PathStage `json:"stages"`
	// Evidence is what was seen on each stage that was reached. It is stored in files of its own (run).
	Evidence []*StageEvidence `json:"-"`
}

// PathStage is one stage of an upgrade path.
type PathStage struct {
	Cell  string   `json:"cell"`            // the name of the stage's cell
	Fault string   `json:"fault,omitempty"` // what went wrong on the way here, on purpose
	Made  []string `json:"made,omitempty"`  // the setups whose objects and tokens were made on this stage
	// DownSeconds is the time from when the API server of the stage before was told to end (or killed) until
	// that of this stage was ready; 0 on the first.
	DownSeconds float64 `json:"downSeconds,omitempty"`

	Objects int `json:"objects"` // how many objects were read at the end of the stage (derived)
	// Reviews is how many access reviews the API server sent during the stage, those of the harness apart;
	// ConstrainedReviews those of them whose verb begins with impersonate: or impersonate-on: (derived).
	Reviews            int     `json:"reviews"`
	ConstrainedReviews int     `json:"constrainedReviews"`
	Claims             []Claim `json:"claims"` // what is said about the stage as a whole (derived)
}

// Claim is something that has to hold for a stage as a whole.
type Claim struct {
	Name    string           `json:"name"`    // one of the Claim constants
	Verdict verdicts.Verdict `json:"verdict"` // passed, failed, or invalid where it could not be looked at
	// Detail says what was compared, or what is wrong.
	Detail string `json:"detail"`
}

// The claims about a stage.
const (
	// ClaimObjects: every object that was made reads byte for byte as on the stage it was made on.
	ClaimObjects = "objects-unchanged"
	// ClaimTokens: every token that was issued on an earlier stage authenticates, and is the same one.
	ClaimTokens = "tokens-work"
	// ClaimNoConstrained: on a stage without the feature no access review has a verb of it.
	ClaimNoConstrained = "no-constrained-review"
	// ClaimAnswers: every request while API servers were replaced was answered as by one of the two versions, or not at all.
	ClaimAnswers = "answers-right"
)

// StageEvidence is what was seen on a stage besides its scenarios.
type StageEvidence struct {
	Cell string `json:"cell"` // the stage's
	// Objects are those of all setups that were made by then, as the API server wrote them at the end of the stage.
	Objects []ObjectState `json:"objects"`
	// Verbs counts the access reviews that arrived at the front of the chain during the stage, by verb.
	Verbs map[string]int `json:"verbs"`
	// Neighbours are the same counts of the other API servers that ran meanwhile, by the cells that they were.
	Neighbours map[string]map[string]int `json:"neighbours,omitempty"`
	// Flow is what became of the requests that flowed on the way to this stage and on it; nil where none did.
	Flow *FlowEvidence `json:"flow,omitempty"`
}

// ObjectState is an object as it was read.
type ObjectState struct {
	Path string `json:"path"`
	Body string `json:"body"` // the JSON of the API server, byte for byte
}

// Redacted is a copy without credentials, as it is stored: claims have to follow from what a reader has.
func (e *StageEvidence) Redacted() (*StageEvidence, error) {
	return record.RedactedCopy(e, "the evidence of stage "+e.Cell)
}

func stagePath(cell string) string { return pathDir + "/" + cell + ".json" }

// Constrained tells whether a verb is one of KEP-5284.
func Constrained(verb string) bool {
	return strings.HasPrefix(verb, "impersonate:") || strings.HasPrefix(verb, "impersonate-on:")
}

func (p *PathReport) derive(r *ConformanceReport, set *scenarios.Set, evidence []*verdicts.Evidence) {
	of := map[string]*StageEvidence{}
	for _, e := range p.Evidence {
		of[e.Cell] = e
	}
	first := map[string]ObjectState{} // by path
	tokens := map[string]string{}     // credential ID by requestor
	for i := range p.Stages {
		stage := &p.Stages[i]
		stage.Objects, stage.Reviews, stage.ConstrainedReviews, stage.Claims = 0, 0, 0, nil
		cell, e := r.cellNamed(stage.Cell), of[stage.Cell]
		if cell == nil || e == nil {
			stage.claim(ClaimObjects, verdicts.Invalid, "the stage was not reached, or broke off")
			continue
		}
		stage.Objects = len(e.Objects)
		for verb, n := range e.Verbs {
			stage.Reviews += n
			if Constrained(verb) {
				stage.ConstrainedReviews += n
			}
		}
		stage.objects(first, e.Objects)
		stage.tokens(tokens, evidence, set)
		if cell.Facts.Gate == scenarios.GateOff {
			stage.noConstrained(stage.Cell, e.Verbs)
		}
		for _, name := range slices.Sorted(maps.Keys(e.Neighbours)) {
			if other := r.cellNamed(name); other != nil && other.Facts.Gate == scenarios.GateOff {
				stage.noConstrained(name, e.Neighbours[name])
			}
		}
		if e.Flow != nil {
			stage.claim(ClaimAnswers, e.Flow.verdict(), e.Flow.Describe())
		}
	}
}

// asked is of a path what was asked for, without what became of it.
func (p *PathReport) asked() *PathReport {
	if p == nil {
		return nil
	}
	bare := &PathReport{Name: p.Name, Description: p.Description, HighAvailability: p.HighAvailability}
	for _, s := range p.Stages {
		bare.Stages = append(bare.Stages, PathStage{Cell: s.Cell, Fault: s.Fault, Made: s.Made})
	}
	return bare
}

func (r *ConformanceReport) cellNamed(name string) *Cell {
	for i := range r.Cells {
		if r.Cells[i].Name == name {
			return &r.Cells[i]
		}
	}
	return nil
}

func (l *PathStage) claim(name string, v verdicts.Verdict, detail string) {
	l.Claims = append(l.Claims, Claim{Name: name, Verdict: v, Detail: detail})
}

func (l *PathStage) objects(first map[string]ObjectState, now []ObjectState) {
	var changed []string
	seen, compared := map[string]bool{}, 0
	for _, o := range now {
		seen[o.Path] = true
		before, known := first[o.Path]
		switch {
		case !known:
			first[o.Path] = o
		case before.Body != o.Body:
			changed = append(changed, fmt.Sprintf("%s: %s", o.Path, jsonChange(before.Body, o.Body)))
		default:
			compared++
		}
	}
	for _, path := range slices.Sorted(maps.Keys(first)) {
		if !seen[path] {
			changed = append(changed, path+" is gone")
		}
	}
	switch {
	case len(changed) > 0:
		l.claim(ClaimObjects, verdicts.Failed, Plural(len(changed), "object")+" changed; the first: "+changed[0])
	case len(now) == 0:
		l.claim(ClaimObjects, verdicts.Invalid, "no object was read")
	case compared == 0:
		l.claim(ClaimObjects, verdicts.Passed, Plural(len(now), "object")+" made and read")
	default:
		l.claim(ClaimObjects, verdicts.Passed, Plural(compared, "object")+" the same, byte for byte")
	}
}

func jsonChange(before, after string) string {
	var a, b any
	if json.Unmarshal([]byte(before), &a) != nil || json.Unmarshal([]byte(after), &b) != nil {
		return "it is not JSON any more"
	}
	at, x, y := firstChange("", a, b)
	return fmt.Sprintf("%s was %s, is %s", cmp.Or(at, "the order of fields"), brief(x), brief(y))
}

// tokens compares the IDs of the tokens that requestors had with those they had on the stage they were first seen on. A
// token that does not authenticate has failed its scenario already: here is told that it was not another one.
func (l *PathStage) tokens(first map[string]string, evidence []*verdicts.Evidence, set *scenarios.Set) {
	same := 0
	var others []string
	for _, e := range evidence {
		s, ok := set.Get(e.Scenario)
		if e.Cell.Name != l.Cell || !ok {
			continue
		}
		for user, id := range credentials(e) {
			key := s.Setup + " " + user
			switch before, known := first[key]; {
			case !known:
				first[key] = id
			case before != id:
				others = append(others, fmt.Sprintf("%s has the token %s, not %s", user, id, before))
			default:
				same++
			}
		}
	}
	switch {
	case len(others) > 0: // in no order
		l.claim(ClaimTokens, verdicts.Failed, slices.Min(others))
	case same > 0:
		l.claim(ClaimTokens, verdicts.Passed, Plural(same, "token")+" of an earlier stage, the same ones")
	}
}

func credentials(e *verdicts.Evidence) map[string]string {
	out := map[string]string{}
	for i := range e.Steps {
		event := verdicts.AuditOf(&e.Steps[i])
		if event == nil {
			continue
		}
		if id := event.User.Extra[user.CredentialIDKey]; len(id) == 1 {
			out[event.User.Username] = id[0]
		}
	}
	return out
}

// noConstrained is about one API server without the feature, which was that of a cell.
func (l *PathStage) noConstrained(cell string, verbs map[string]int) {
	where, total := "", 0
	if cell != l.Cell {
		where = " at " + cell
	}
	for _, n := range verbs {
		total += n
	}
	for _, verb := range slices.Sorted(maps.Keys(verbs)) {
		if Constrained(verb) {
			l.claim(ClaimNoConstrained, verdicts.Failed, fmt.Sprintf("%s with the verb %s%s", Plural(verbs[verb], "review"), verb, where))
			return
		}
	}
	if total == 0 {
		l.claim(ClaimNoConstrained, verdicts.Invalid, "no review arrived at all"+where)
		return
	}
	l.claim(ClaimNoConstrained, verdicts.Passed, fmt.Sprintf("none of %s%s", Plural(total, "review"), where))
}

func (p *PathReport) conclude(c *conclusion) {
	for _, l := range p.Stages {
		for _, claim := range l.Claims {
			line := fmt.Sprintf("%s: %s: %s", l.Cell, claim.Name, claim.Detail)
			switch claim.Verdict {
			case verdicts.Passed:
			case verdicts.Failed:
				c.failed = append(c.failed, line)
			default:
				c.unknown = append(c.unknown, line)
			}
		}
	}
}
