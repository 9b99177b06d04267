package library

import (
	"bytes"
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/authzconf/authzconf/conditional/vectors"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
)

// Report is what came of holding the library against the vectors.
type Report struct {
	reports.Record `json:",inline"`

	// Library is the module and its version.
	Library  string    `json:"library"`
	Sections []Section `json:"sections"`
	// Divergences and Absent are the known ones, with how often they were seen.
	Divergences []Divergence `json:"divergences"`
	Absent      []Divergence `json:"absent"`
	// Failed are vectors that differ and are no known divergence.
	Failed []Failure `json:"failed,omitempty"`
	// Stale are known divergences that are none any more, and sections without vectors.
	Stale []string `json:"stale,omitempty"`
}

// Section is what came of the vectors of one section of the KEP.
type Section struct {
	Name      string `json:"name"`
	Agree     int    `json:"agree"`
	Divergent int    `json:"divergent"`
	Absent    int    `json:"absent"`
	Failed    int    `json:"failed"`
	// Webhook are vectors that judge authorizers, which the library is none of.
	Webhook int `json:"webhook"`
}

// Total is how many vectors a section has.
func (s *Section) Total() int { return s.Agree + s.Divergent + s.Absent + s.Failed + s.Webhook }

// Failure is a vector that differs.
type Failure struct {
	ID          string   `json:"id"`
	Differences []string `json:"differences"`
}

// Judge holds the library that authzconf is built with against vectors.
func Judge(ctx context.Context, all []*vectors.Vector, list *List, library string) (*Report, error) {
	r := &Report{Library: library}
	index := map[string]int{}
	for i, name := range list.Sections {
		r.Sections = append(r.Sections, Section{Name: name})
		index[name] = i
	}
	differing, known := map[string]bool{}, map[string]bool{}
	for _, v := range all {
		known[v.ID] = true
		at, ok := index[v.Source.Section]
		if !ok {
			r.Stale = append(r.Stale, fmt.Sprintf("%s: the section %q is not listed", v.ID, v.Source.Section))
			continue
		}
		if err := r.judge(ctx, v, list, &r.Sections[at], differing); err != nil {
			return nil, err
		}
	}
	for _, s := range r.Sections {
		if s.Total() == 0 {
			r.Stale = append(r.Stale, fmt.Sprintf("section %q has no vectors", s.Name))
		}
	}
	r.Stale = append(r.Stale, list.stale(differing, known)...)
	r.Divergences, r.Absent = list.Divergences, list.Absent
	r.Conclude(!r.Passed(), false)
	return r, nil
}

// judge counts one vector.
func (r *Report) judge(ctx context.Context, v *vectors.Vector, list *List, s *Section, differing map[string]bool) error {
	if v.Webhook != nil {
		s.Webhook++
		return nil
	}
	for i := range list.Absent {
		if list.Absent[i].names(v.ID) {
			list.Absent[i].Seen++
			s.Absent++
			return nil
		}
	}
	got, err := fromLibrary(ctx, v.APIServer)
	if err != nil {
		return fmt.Errorf("%s: %w", v.ID, err)
	}
	lazy, eager := v.APIServer.Wanted(vectors.Lazy), v.APIServer.Wanted(vectors.Eager)
	differences := lazy.Differences(got)
	if len(differences) == 0 {
		s.Agree++
		return nil
	}
	differing[v.ID] = true
	// What is left when the library is read as it is, eagerly.
	rest := eager.Differences(got)
	for i := range list.Divergences {
		d := &list.Divergences[i]
		if d.Reading == vectors.Eager && len(rest) == 0 || d.names(v.ID) && len(rest) > 0 && d.covers(rest) {
			d.Seen++
			s.Divergent++
			return nil
		}
	}
	if len(rest) == 0 {
		rest = differences
	}
	s.Failed++
	r.Failed = append(r.Failed, Failure{ID: v.ID, Differences: rest})
	return nil
}

// Passed tells whether everything is as it is known to be.
func (r *Report) Passed() bool { return len(r.Failed) == 0 && len(r.Stale) == 0 }

// Lines are the report for people.
func (r *Report) Lines() []string {
	var text bytes.Buffer
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "section\tagree\tdivergent\tabsent\tfailed\tfor webhooks")
	var sum Section
	for _, s := range r.Sections {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\n", s.Name, s.Agree, s.Divergent, s.Absent, s.Failed, s.Webhook)
		sum.Agree, sum.Divergent, sum.Absent = sum.Agree+s.Agree, sum.Divergent+s.Divergent, sum.Absent+s.Absent
		sum.Failed, sum.Webhook = sum.Failed+s.Failed, sum.Webhook+s.Webhook
	}
	_ = t.Flush()
	out := strings.Split(strings.TrimSpace(text.String()), "\n")
	list := func(what string, all []Divergence) {
		for _, d := range all {
			out = append(out, fmt.Sprintf("%s %s, %d vectors: %s %s (%s)", what, d.Name, d.Seen, d.Says, d.Instead, d.Upstream))
		}
	}
	list("divergence", r.Divergences)
	list("absent", r.Absent)
	for _, f := range r.Failed {
		out = append(out, fmt.Sprintf("failed: %s: %s", f.ID, strings.Join(f.Differences, "; ")))
	}
	for _, s := range r.Stale {
		out = append(out, "failed: "+s)
	}
	outcome := "passed"
	if !r.Passed() {
		outcome = "failed"
	}
	return append(out,
		fmt.Sprintf("%s: %d vectors: %d agree, %d divergent, %d absent, %d failed; %d for webhooks", r.Library, sum.Total(), sum.Agree, sum.Divergent, sum.Absent, sum.Failed, sum.Webhook),
		"outcome: "+outcome)
}

// Folder is a report in a folder.
var Folder = filing.Kind{Name: "report of conditions library", Marker: "library.yaml", Head: map[string]string{"library": "", "sections": ""}, Files: []string{reports.SignatureFile}}

// Library is the module that is judged, and its version in this program.
func Library() string {
	const module = "k8s.io/apiserver"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == module {
				return module + " " + d.Version
			}
		}
	}
	return module
}
