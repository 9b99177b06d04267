package pages

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/authzconf/authzconf/reports"
)

// fact is a circumstance of the run as the page shows it.
type fact struct {
	Name  string
	Value string
	// Code is true for text that a reader may want to copy.
	Code bool
}

// nameSubject returns what was judged, with its version if one was stated.
func nameSubject(s reports.Subject) string { return strings.TrimSpace(s.Name + " " + s.Version) }

// describeSubject returns everything that is known of who is behind the subject.
func describeSubject(s reports.Subject) string {
	text := nameSubject(s)
	if s.Vendor != "" {
		text += " by " + s.Vendor
	}
	if s.Contact != "" {
		text += " <" + s.Contact + ">"
	}
	if s.Provider != "" {
		text += " (" + s.Provider + ")"
	}
	return text
}

// describeSize returns how many cases there are in how many groups.
func describeSize(r *reports.Report) string {
	cases := 0
	for _, g := range r.Groups {
		cases += len(g.Cases) + len(g.NotRun)
	}
	return reports.Plural(cases, "case") + " in " + reports.Plural(len(r.Groups), "group")
}

// listFacts returns what a reader has to know to repeat the run.
func listFacts(r *reports.Report) []fact {
	took := r.Finished.Sub(r.Started).Round(100 * time.Millisecond)
	facts := []fact{
		{Name: "Subject", Value: describeSubject(r.Subject)},
		{Name: "authzconf", Value: r.SuiteVersion},
		{Name: "Run", Value: r.Started.UTC().Format("2006-01-02 15:04:05 MST") + ", " + took.String()},
		{Name: "Seed", Value: strconv.FormatInt(r.Seed, 10)},
	}
	if len(r.Require) > 0 {
		facts = append(facts, fact{Name: "Required levels", Value: joinLevels(r.Require)})
	}
	return append(facts,
		fact{Name: "Record", Value: describeRecord(r), Code: true},
		fact{Name: "Command", Value: strings.Join(r.Command, " "), Code: true},
	)
}

func describeRecord(r *reports.Report) string {
	return fmt.Sprintf("%s, SHA-256 %s", reports.Plural(r.Record.Entries, "file"), r.Record.Digest)
}

func joinLevels[T ~string](levels []T) string {
	var names []string
	for _, l := range levels {
		names = append(names, string(l))
	}
	return strings.Join(names, ", ")
}
