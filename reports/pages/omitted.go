package pages

import (
	_ "embed" // the template
	"slices"
	"strings"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

//go:embed omitted.html.tmpl
var omittedTemplate string

// omittedSection shows what was not judged, and why.
var omittedSection = section{name: "omitted", template: omittedTemplate, views: viewOmitted}

// listedNames limits how many names of cases the section lists. report.yaml has all of them.
const listedNames = 2000

// omission is a reason for which cases were not judged, and the groups in which it is true of the same cases.
type omission struct {
	Why    string
	Groups []string
	Cases  []string
	// Listed is true if there is space for the names of the cases.
	Listed bool
}

func viewOmitted(p *page) ([]view, error) {
	omissions := foldOmissions(p.Groups)
	if len(omissions) == 0 {
		return nil, nil
	}
	room := listedNames
	for i := range omissions {
		o := &omissions[i]
		o.Listed = len(o.Cases) <= room
		if o.Listed {
			room -= len(o.Cases)
		}
	}
	return showView(view{ID: "notrun", Title: "Not judged", Data: omissions})
}

// foldOmissions returns the reasons for which cases were not judged, in order of appearance.
func foldOmissions(groups []reports.Group) (folded []omission) {
	at := map[string]int{}
	for i := range groups {
		for _, o := range listOmissions(&groups[i]) {
			key := o.Why + "\n" + strings.Join(o.Cases, "\n")
			if j, known := at[key]; known {
				folded[j].Groups = append(folded[j].Groups, groups[i].Name)
				continue
			}
			at[key] = len(folded)
			folded = append(folded, o)
		}
	}
	return folded
}

// listOmissions returns the reasons of one group for cases that were not to be judged, for cases that the target does
// not support, and for parts of cases.
func listOmissions(g *reports.Group) (list []omission) {
	at := map[string]int{}
	add := func(why, name string) {
		i, known := at[why]
		if !known {
			i = len(list)
			at[why] = i
			list = append(list, omission{Why: why, Groups: []string{g.Name}})
		}
		list[i].Cases = append(list[i].Cases, name)
	}
	for _, r := range g.Cases {
		if slices.Contains([]verdicts.Verdict{verdicts.NotSupported, verdicts.Skipped}, r.Verdict) {
			add(r.Reason, r.Case)
		}
	}
	for _, o := range g.NotRun {
		add(o.Why, o.Case)
	}
	for _, r := range g.Cases {
		if len(r.NotJudged) > 0 {
			add("judged in part: the target can't show "+strings.Join(r.NotJudged, ", "), r.Case)
		}
	}
	return list
}

// Where returns the names of the groups, or, of many, how many there are.
func (o omission) Where() string { return joinGroups(o.Groups) }
