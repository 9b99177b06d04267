package certification

import (
	"slices"
	"strings"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/conditional/vectors"
	"github.com/authzconf/authzconf/conditional/wire"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/verdicts"
)

// Played is what came of vectors of somebody's own.
type Played struct {
	reports.Record `json:",inline"`

	// Subject is what was judged.
	Subject string   `json:"subject"`
	Seed    int64    `json:"seed"`
	Results []VectorResult `json:"results"`
}

// VectorResult is what came of a vector in a revision of the wire. One that is not supported says nothing about the subject.
type VectorResult struct {
	Vector  string           `json:"vector"`
	Section string           `json:"section"`
	Wire    string           `json:"wire"`
	Verdict verdicts.Verdict `json:"verdict"`
	Why     []string         `json:"why,omitempty"`
}

// PlayedFolder is a report in a folder.
var PlayedFolder = filing.Kind{
	Name: "report of conditions run", Marker: "conditions.yaml", Head: map[string]string{"subject": "", "results": ""},
	Files: append([]string{"evidence/*.json.gz"}, reports.BriefFiles...),
}

// Play judges vectors in revisions of the wire: by the exchanges with an authorizer, under a seed, or by asking library,
// if that is what is judged.
func Play(all []*vectors.Vector, seed int64, wires []*wire.Revision, exchanges []Exchange, library func(*vectors.Vector) (verdicts.Verdict, []string, error)) (*Played, error) {
	plan, err := NewPlan(all, seed)
	if err != nil {
		return nil, err
	}
	p := &Played{Seed: seed}
	for _, w := range wires {
		of := slices.DeleteFunc(slices.Clone(exchanges), func(x Exchange) bool { return x.Wire != w.Name })
		for _, v := range all {
			r := VectorResult{Vector: v.ID, Section: v.Source.Section, Wire: w.Name, Verdict: verdicts.NotSupported}
			switch cannot := w.Cannot(v); {
			case cannot != "":
				r.Why = []string{"this wire cannot say it: " + cannot}
			case library != nil:
				r.Verdict, r.Why, err = library(v)
			case v.Webhook == nil:
				r.Why = []string{"it judges an API server, and this is an authorizer"}
			default:
				r.Verdict, r.Why, err = plan.verdict(v.ID, of)
			}
			if err != nil {
				return nil, err
			}
			p.Results = append(p.Results, r)
		}
	}
	p.Conclude(p.Count(verdicts.Failed) > 0, p.Count(verdicts.Invalid) > 0 || p.Count(verdicts.Passed) == 0)
	return p, nil
}

// Count is how many results have a verdict.
func (p *Played) Count(v verdicts.Verdict) (n int) {
	for _, r := range p.Results {
		if r.Verdict == v {
			n++
		}
	}
	return n
}

// verdict is what exchanges show of one vector. What the text only advises costs nothing, and is said.
func (b *Plan) verdict(id string, all []Exchange) (v verdicts.Verdict, why []string, err error) {
	judged, err := b.JudgeVector(id, all)
	if err != nil {
		return "", nil, err
	}
	if !slices.ContainsFunc(judged.Results, func(l certify.LevelResult) bool { return l.Reviews > 0 }) {
		return verdicts.Invalid, []string{"it was not asked: the authorizer had ended the run before"}, nil
	}
	v = verdicts.Passed
	for _, f := range judged.Findings {
		if !f.Advice {
			v = verdicts.Failed
		}
		why = append(why, f.Reason+": "+strings.Join(f.Examples, "; "))
	}
	return v, why, nil
}

// Pages are the vectors.
func (p *Played) Pages() (map[string][]byte, error) {
	b := reports.Brief{Suite: "conditions.run", Title: "Vectors of KEP-5681 against " + p.Subject, Outcome: p.Outcome}
	for _, r := range p.Results {
		b.Add(r.Vector+", wire "+r.Wire, r.Verdict, slices.Clone(r.Why)...)
	}
	return b.Pages()
}
