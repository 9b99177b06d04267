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

	Subject string `json:"subject"`
	// Files says how many of authzconf's files of vectors were played, or that they are somebody's own.
	Files   string                   `json:"vectorFiles"`
	Seed    int64                    `json:"seed"`
	Results []VectorResult           `json:"results"`
	Totals  map[verdicts.Verdict]int `json:"totals"`
}

// VectorResult is what came of a vector, in a revision of the wire if it was asked in one. One that is not supported
// says nothing about the subject.
type VectorResult struct {
	*vectors.Vector `json:"-"`
	ID              string           `json:"vector"`
	Wire            string           `json:"wire,omitempty"`
	Verdict         verdicts.Verdict `json:"verdict"`
	Why             []string         `json:"why,omitempty"`
}

// PlayedFolder is a report in a folder.
var PlayedFolder = filing.Kind{
	Name: "report of conditions run", Marker: "conditions.yaml", Head: map[string]string{"subject": "", "results": ""},
	Files: append([]string{"evidence/*.json.gz"}, reports.BriefFiles...),
}

// Add adds what came of a vector.
func (p *Played) Add(r VectorResult) {
	if p.Totals == nil {
		p.Totals = map[verdicts.Verdict]int{}
	}
	r.ID = r.Vector.ID
	p.Results, p.Totals[r.Verdict] = append(p.Results, r), p.Totals[r.Verdict]+1
	p.Conclude(p.Totals[verdicts.Failed] > 0, p.Totals[verdicts.Invalid] > 0 || p.Totals[verdicts.Passed] == 0)
}

// Play judges an authorizer by exchanges about vectors, in each revision of the wire that some are in.
func Play(all []*vectors.Vector, seed int64, exchanges []Exchange) (*Played, error) {
	plan, err := NewPlan(all, seed)
	if err != nil {
		return nil, err
	}
	p := &Played{Seed: seed}
	for _, v := range all {
		if v.Webhook == nil {
			p.Add(VectorResult{Vector: v, Verdict: verdicts.NotSupported, Why: []string{"it judges an API server, and this is an authorizer"}})
			continue
		}
		for _, w := range wire.Revisions() {
			if !slices.ContainsFunc(exchanges, func(x Exchange) bool { return x.Wire == w.Name }) {
				continue
			}
			r := VectorResult{Vector: v, Wire: w.Name, Verdict: verdicts.Passed}
			of := slices.DeleteFunc(slices.Clone(exchanges), func(x Exchange) bool { return x.Wire != w.Name || x.Vector != v.ID })
			judged, err := plan.Judge(of)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(judged.Results, func(l certify.LevelResult) bool { return l.Reviews == 1 }) {
				r.Verdict, r.Why = verdicts.Invalid, []string{"it was not asked, or not all of it: the authorizer had ended the run before"}
			}
			for _, f := range judged.Findings {
				means := "the text advises against it" // which costs nothing
				if !f.Advice {
					r.Verdict, means = verdicts.Failed, "the text demands otherwise"
				}
				r.Why = append(r.Why, f.Reason+": "+means+"\n  "+strings.Join(f.Examples, "\n  "))
			}
			p.Add(r)
		}
	}
	return p, nil
}
