package library

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// Report is the result of the comparison of the library with vectors.
type Report struct {
	Sections []Section
	// Divergences and Absent are the entries of the list, with the number of vectors that they were seen with.
	Divergences []Divergence
	Absent      []Divergence
	// Failed are the vectors that differ without a known divergence.
	Failed []Failure
	// Stale names entries of the list that are no longer true, and sections without vectors.
	Stale []string
}

// Section has the results of the vectors of one section of the KEP.
type Section struct {
	Name                           string
	Agree, Divergent, Absent, Part int
	Failed                         int
	// Webhook counts vectors that judge authorizers, which the library is not.
	Webhook int
}

// Total returns how many vectors a section has.
func (s *Section) Total() int {
	return s.Agree + s.Divergent + s.Absent + s.Part + s.Failed + s.Webhook
}

func (s *Section) count(kind Kind) {
	switch kind {
	case Agree:
		s.Agree++
	case Part:
		s.Part++
	case Absent:
		s.Absent++
	case Divergent:
		s.Divergent++
	case Failed:
		s.Failed++
	}
}

// Failure is a vector that differs.
type Failure struct {
	ID          string
	Differences []string
}

// Judge compares the library that authzconf is built with with vectors.
func Judge(ctx context.Context, all []*vectors.Vector, list *List) (*Report, error) {
	findings := map[string]Finding{}
	for _, v := range all {
		if v.APIServer == nil {
			continue
		}
		got, err := Observe(ctx, v.APIServer)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.ID, err)
		}
		findings[v.ID] = list.Compare(v, got)
	}
	return NewReport(all, list, findings), nil
}

// NewReport counts the results of vectors, which are given by their IDs, and finds the entries of the list that are no
// longer true.
func NewReport(all []*vectors.Vector, list *List, findings map[string]Finding) *Report {
	r := &Report{}
	sections := map[string]int{}
	for i, name := range list.Sections {
		r.Sections = append(r.Sections, Section{Name: name})
		sections[name] = i
	}
	var countedVectors []*vectors.Vector
	for _, v := range all {
		i, listed := sections[v.Source.Section]
		if !listed {
			r.Stale = append(r.Stale, fmt.Sprintf("%s: the section %q is not listed", v.ID, v.Source.Section))
			continue
		}
		countedVectors = append(countedVectors, v)
		r.add(v, &r.Sections[i], findings)
	}
	for _, s := range r.Sections {
		if s.Total() == 0 {
			r.Stale = append(r.Stale, fmt.Sprintf("section %q has no vectors", s.Name))
		}
	}
	r.Stale = append(r.Stale, list.findStale(all, countedVectors, findings)...)
	r.Divergences, r.Absent = list.Divergences, list.Absent
	return r
}

// add counts one vector. One without a finding was not compared.
func (r *Report) add(v *vectors.Vector, s *Section, findings map[string]Finding) {
	f, compared := findings[v.ID]
	switch {
	case v.APIServer == nil:
		s.Webhook++
	case compared:
		s.count(f.Kind)
		if f.Kind == Failed {
			r.Failed = append(r.Failed, Failure{ID: v.ID, Differences: f.Differences})
		}
		if f.Stale != "" {
			r.Stale = append(r.Stale, f.Stale)
		}
	}
}

// Passed reports whether the library does everything as the list says.
func (r *Report) Passed() bool { return len(r.Failed) == 0 && len(r.Stale) == 0 }

// Module returns the module that is judged, and its version in this program.
func Module() string {
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
