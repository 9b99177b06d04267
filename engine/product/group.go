package product

import (
	"github.com/authzconf/authzconf/reports"
)

// Group puts results into the groups of their cases, in the order of the cases. Cases that are not run are in NotRun, but
// for those that the target can't show: they have the verdict notSupported.
func Group(cases []Case, results []reports.Result) (groups []reports.Group) {
	at := map[string]int{}
	next := 0
	for _, c := range cases {
		i, known := at[c.Group]
		if !known {
			i = len(groups)
			at[c.Group] = i
			groups = append(groups, reports.Group{Name: c.Group, Cases: []reports.Result{}})
		}
		g := &groups[i]
		switch {
		case c.NotRun == nil:
			g.Cases = append(g.Cases, results[next])
			next++
		case c.NotRun.Cause == reports.CauseTargetLacks:
			g.Cases = append(g.Cases, reports.NotSupported(c.Name, c.Level, c.NotRun.Why))
		default:
			g.NotRun = append(g.NotRun, reports.Omission{Case: c.Name, Level: c.Level, Cause: c.NotRun.Cause, Why: c.NotRun.Why})
		}
	}
	return groups
}
