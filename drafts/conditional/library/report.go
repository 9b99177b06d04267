package library

import (
	"context"
	_ "embed" // the list of divergences
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	_ "k8s.io/apiserver/pkg/features" // registers the gates
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Report is what came of holding the library against the vectors.
type Report struct {
	reports.Record `json:",inline"`

	Library  string    `json:"library"` // the module and its version
	Sections []Section `json:"sections"`
	// Divergences and Absent are the known ones, with how often they were seen.
	Divergences []Divergence `json:"divergences"`
	Absent      []Divergence `json:"absent"`
	Failed      []Failure    `json:"failed,omitempty"` // vectors that differ and are no known divergence
	// Stale are known divergences that are none any more, and sections without vectors.
	Stale []string `json:"stale,omitempty"`
}

// Section is what came of the vectors of one section of the KEP.
type Section struct {
	Name      string `json:"name"`
	Agree     int    `json:"agree"`
	Divergent int    `json:"divergent"`
	Absent    int    `json:"absent"`
	// Part are vectors with which the library agrees as far as it has a part for them; the rest of their fields, as the
	// whole of those that are Absent, is judged by nothing but our own model.
	Part    int `json:"part"`
	Failed  int `json:"failed"`
	Webhook int `json:"webhook"` // vectors that judge authorizers, which the library is none of
}

// Total is how many vectors a section has.
func (s *Section) Total() int {
	return s.Agree + s.Divergent + s.Absent + s.Part + s.Failed + s.Webhook
}

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

// Play holds the library to a vector of somebody's own: its known divergences, and what it has no part for, do not count.
func Play(ctx context.Context, v *vectors.Vector) (verdicts.Verdict, []string, error) {
	list, err := Known()
	if err != nil {
		return "", nil, err
	}
	list.Sections = []string{v.Source.Section}
	r, err := Judge(ctx, []*vectors.Vector{v}, list, "")
	if err != nil {
		return "", nil, err
	}
	switch s := r.Sections[0]; {
	case s.Failed > 0:
		return verdicts.Failed, r.Failed[0].Differences, nil
	case s.Divergent > 0:
		i := slices.IndexFunc(r.Divergences, func(d Divergence) bool { return d.Seen > 0 })
		return verdicts.NotSupported, []string{"a known divergence, " + r.Divergences[i].Name + ": " + r.Divergences[i].Instead}, nil
	case s.Agree+s.Part == 0:
		return verdicts.NotSupported, []string{"the library has no part for it"}, nil
	}
	return verdicts.Passed, nil, nil
}

func (r *Report) judge(ctx context.Context, v *vectors.Vector, list *List, s *Section, differing map[string]bool) error {
	if v.Webhook != nil {
		s.Webhook++
		return nil
	}
	absent := slices.IndexFunc(list.Absent, func(d Divergence) bool { return d.names(v.ID) })
	if absent >= 0 {
		list.Absent[absent].Seen++
	}
	got, err := fromLibrary(ctx, v.APIServer)
	if err != nil {
		return fmt.Errorf("%s: %w", v.ID, err)
	}
	if absent >= 0 { // whom the filter and the enforcer call nobody knows
		got.AskedLater, got.EvaluatedBy = nil, nil
	}
	lazy, eager := v.APIServer.Wanted(vectors.Lazy), v.APIServer.Wanted(vectors.Eager)
	differences, server := lazy.Differences(got), v.APIServer.Server
	switch {
	case lazy.Stated(got) == 0, server.Version == "old", server.Gate != "on", absent >= 0 && !list.Absent[absent].Part:
		s.Absent++
		return nil
	case absent >= 0 && len(differences) == 0:
		s.Part++
		return nil
	case len(differences) == 0:
		s.Agree++
		return nil
	}
	differing[v.ID] = true
	// What is left when the library is read as it is, eagerly.
	rest := eager.Differences(got)
	for i := range list.Divergences {
		var explained bool
		d := &list.Divergences[i]
		if known := d.answers(v.ID); known != nil {
			then := eager.But(*known)
			rest = then.Differences(got)
			explained = len(rest) == 0
			if stated, differs := known.Stated(known), len(eager.Differences(known)); explained && stated != differs {
				r.Stale = append(r.Stale, fmt.Sprintf("divergence %s: %s: %d of the fields that are stated do not differ", d.Name, v.ID, stated-differs))
			}
		} else {
			explained = d.Reading == vectors.Eager && len(rest) == 0
		}
		if explained {
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

// Sum is what came of the vectors of all sections.
func (r *Report) Sum() *Section {
	sum := &Section{}
	for _, s := range r.Sections {
		sum.Agree, sum.Divergent, sum.Absent, sum.Part = sum.Agree+s.Agree, sum.Divergent+s.Divergent, sum.Absent+s.Absent, sum.Part+s.Part
		sum.Failed, sum.Webhook = sum.Failed+s.Failed, sum.Webhook+s.Webhook
	}
	return sum
}

// Folder is a report in a folder.
var Folder = filing.Kind{Name: "report of conditions library", Marker: "library.yaml", Head: map[string]string{"library": "", "sections": ""}, Files: reports.BriefFiles}

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

//go:embed divergences.yaml
var divergencesFile []byte

// List is what is known of the library.
type List struct {
	Divergences []Divergence `yaml:"divergences"`
	Absent      []Divergence `yaml:"absent"`
	Sections    []string     `yaml:"sections"` // those of the KEP that demand something
}

// Divergence is something that the library does otherwise than the KEP says, or has no part for.
type Divergence struct {
	Name     string `json:"name" yaml:"name"`
	Upstream string `json:"upstream" yaml:"upstream"` // the file and function in k8s.io/apiserver
	Says     string `json:"says" yaml:"says"`         // what the KEP says, Instead what the library does
	Instead  string `json:"instead" yaml:"instead"`
	// Vectors are IDs of what is absent; one that ends in "/" is a folder.
	Vectors []string `json:"vectors,omitempty" yaml:"vectors,omitempty"`
	Answers []Answer `json:"answers,omitempty" yaml:"answers,omitempty"` // what the library answers instead
	// Reading covers every vector with which the library agrees in that reading.
	Reading vectors.Reading `json:"reading,omitempty" yaml:"reading,omitempty"`
	// Part says that the library has a part for some fields of the vectors of what is absent: those are judged.
	Part bool `json:"part,omitempty" yaml:"part,omitempty"`
	// Probe names what is looked at to see whether it is absent still.
	Probe string `json:"probe,omitempty" yaml:"probe,omitempty"`
	Seen  int    `json:"seen" yaml:"-"` // how many vectors it was seen with
}

// Answer is what the library answers to vectors: the fields that differ, with their values.
type Answer struct {
	Vectors      []string `json:"vectors" yaml:"vectors"`
	vectors.Want `json:",inline" yaml:",inline"`
}

// Known is the list that comes with authzconf.
func Known() (*List, error) {
	var l List
	_, err := scenarios.Decode("divergences.yaml", divergencesFile, "a list of divergences", &l)
	return &l, err
}

func (d *Divergence) names(id string) bool {
	return slices.ContainsFunc(d.Vectors, func(v string) bool {
		return v == id || strings.HasSuffix(v, "/") && strings.HasPrefix(id, v)
	})
}

// answers is what is known of the library's answer to a vector.
func (d *Divergence) answers(id string) *vectors.Want {
	for i := range d.Answers {
		if slices.Contains(d.Answers[i].Vectors, id) {
			return &d.Answers[i].Want
		}
	}
	return nil
}

// probes tell whether the library has a part by now.
var probes = map[string]func() bool{
	"conditionsChain": func() bool {
		_, there := reflect.TypeFor[authorizationv1.SubjectAccessReviewStatus]().FieldByName("ConditionsChain")
		return there
	},
	"gate": func() bool {
		_, there := utilfeature.DefaultMutableFeatureGate.GetAll()[featuregate.Feature("ConditionalAuthorization")]
		return there
	},
	"effects": func() bool {
		_, there := reflect.TypeFor[authorizer.Condition]().MethodByName("GetEffect")
		return there
	},
}

// stale says which entries are not true any more. Each divergence has to be seen, and each vector that it names to be
// one that differs; of what is absent a vector has to be known.
func (l *List) stale(differing, known map[string]bool) (out []string) {
	all := func(what string, list []Divergence, unseen string, right map[string]bool, wrong string) {
		for _, d := range list {
			if d.Seen == 0 {
				out = append(out, fmt.Sprintf("%s %s: %s", what, d.Name, unseen))
			}
			ids := slices.Clone(d.Vectors)
			for _, a := range d.Answers {
				ids = append(ids, a.Vectors...)
			}
			for _, id := range ids {
				if !strings.HasSuffix(id, "/") && !right[id] {
					out = append(out, fmt.Sprintf("%s %s: %s %s", what, d.Name, id, wrong))
				}
			}
		}
	}
	all("divergence", l.Divergences, "nothing differs any more", differing, "does not differ, or is not a vector")
	all("absent", l.Absent, "no vector is about it", known, "is not a vector")
	for _, d := range l.Absent {
		if probe := probes[d.Probe]; probe == nil {
			out = append(out, fmt.Sprintf("absent %s: probe %q is unknown", d.Name, d.Probe))
		} else if probe() {
			out = append(out, fmt.Sprintf("absent %s: it is there by now (%s)", d.Name, d.Probe))
		}
	}
	return out
}
