package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/ci/mutants/campaign"
	"github.com/authzconf/authzconf/ci/mutants/mutate"
	"github.com/authzconf/authzconf/ci/mutants/program"
	"github.com/authzconf/authzconf/clusters/local"
)

// Names of files in the output folder: the results, and the whole table for people.
const (
	resultsFile = "results.json"
	tableFile   = "mutants.md"
)

// argument says why a mutant is no change that a client can see, or why the suite does not detect it.
type argument struct {
	// Key and Snippet are those of the mutant; both have to agree, so that an argument does not outlive the code
	// it is about.
	Key     string `json:"key"`
	Snippet string `json:"snippet"`
	Reason  string `json:"reason"`
}

// arguments are the reviewed ones: reasons by the mutants' keys.
type arguments struct {
	// equivalent mutants are no change that a client can see.
	equivalent map[string]string
	// gaps can be seen, but no scenario of the suite can be expected to look.
	gaps map[string]string
}

// addUnreachable argues the mutants within statements that no client reaches.
func (a arguments) addUnreachable(unreachable []program.Argument, mutants []mutate.Mutant) {
	for _, m := range mutants {
		for _, u := range unreachable {
			if _, ok := a.equivalent[m.Key]; !ok && u.Covers(m.File, m.Line) {
				a.equivalent[m.Key] = "No client reaches it. " + strings.TrimSpace(u.Reason)
			}
		}
	}
}

// loadArguments reads the reviewed arguments.
func loadArguments(path string, mutants []mutate.Mutant) (arguments, error) {
	out := arguments{equivalent: map[string]string{}, gaps: map[string]string{}}
	data, err := os.ReadFile(path)
	if err != nil {
		return out, fmt.Errorf("the arguments for equivalent mutants: %w", err)
	}
	var file struct {
		Equivalent []argument `json:"equivalent"`
		Gaps       []argument `json:"gaps"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return out, fmt.Errorf("%s: %w", path, err)
	}
	known := byKey(mutants)
	seen := map[string]bool{}
	var errs []error
	for i, a := range slices.Concat(file.Equivalent, file.Gaps) {
		m, ok := known[a.Key]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%s: there is no mutant %s", path, a.Key))
		case m.Snippet != a.Snippet:
			errs = append(errs, fmt.Errorf("%s: mutant %s changes %q, not %q", path, a.Key, m.Snippet, a.Snippet))
		case strings.TrimSpace(a.Reason) == "":
			errs = append(errs, fmt.Errorf("%s: mutant %s has no reason", path, a.Key))
		case seen[a.Key]:
			errs = append(errs, fmt.Errorf("%s: mutant %s is there twice", path, a.Key))
		}
		seen[a.Key] = true
		if i < len(file.Equivalent) {
			out.equivalent[a.Key] = a.Reason
		} else {
			out.gaps[a.Key] = a.Reason
		}
	}
	return out, errors.Join(errs...)
}

func byKey(mutants []mutate.Mutant) map[string]mutate.Mutant {
	out := map[string]mutate.Mutant{}
	for _, m := range mutants {
		out[m.Key] = m
	}
	return out
}

// results are those of a run, and of the one that it resumes.
type results struct {
	// Kubernetes is the release whose package is mutated; Digest stands for the mutated source.
	Kubernetes string `json:"kubernetes"`
	Digest     string `json:"digest"`
	// Seconds is the time of all runs that went into the results.
	Seconds float64 `json:"seconds"`
	Results list    `json:"results"`

	mutants []mutate.Mutant
	arguments
}

func newResults(r local.Release, s *program.Sources, a arguments) *results {
	return &results{Kubernetes: r.Version, Digest: s.Digest(), mutants: s.Mutants, arguments: a}
}

// resume takes over the caught mutants of an earlier run on the same release, as far as they are derived in the
// same way today.
func (r *results) resume(folder string) error {
	path := filepath.Join(folder, resultsFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	var old results
	if err := json.Unmarshal(data, &old); err != nil {
		return fmt.Errorf("--resume: %s: %w", path, err)
	}
	if old.Kubernetes != r.Kubernetes {
		return fmt.Errorf("--resume: the results in %s are of Kubernetes %s, not %s", folder, old.Kubernetes, r.Kubernetes)
	}
	r.Seconds = old.Seconds
	today := byKey(r.mutants)
	for _, one := range old.Results {
		m := today[one.Key]
		if one.Status.Caught() && m.Line == one.Line && m.Snippet == one.Snippet && m.Change == one.Change {
			one.Mutant = m
			r.add(one)
		}
	}
	return nil
}

func (r *results) caught(key string) bool {
	return slices.ContainsFunc(r.Results, func(one campaign.Result) bool { return one.Key == key && one.Status.Caught() })
}

func (r *results) add(one campaign.Result) { r.Results = append(r.Results, one) }

// write adds the equivalent mutants that were not run and the reasons, sorts, and writes the file.
func (r *results) write(folder string) error {
	seen := map[string]bool{}
	for i, one := range r.Results {
		seen[one.Key] = true
		r.Results[i].Reason = r.equivalent[one.Key]
		if !one.Status.Caught() && one.Status != campaign.Equivalent {
			r.Results[i].Reason = r.gaps[one.Key]
		}
	}
	for _, m := range r.mutants {
		if reason, ok := r.equivalent[m.Key]; ok && !seen[m.Key] {
			r.add(campaign.Result{Mutant: m, Status: campaign.Equivalent, Reason: reason})
		}
	}
	slices.SortFunc(r.Results, func(x, y campaign.Result) int { return x.Number - y.Number })
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, resultsFile), append(data, '\n'), 0o644)
}

// contradictions are mutants that were caught, against what is argued.
func (r *results) contradictions() (keys []string) {
	for _, one := range r.Results {
		if r.equivalent[one.Key]+r.gaps[one.Key] != "" && one.Status.Caught() {
			keys = append(keys, one.Key)
		}
	}
	return keys
}

// unexplained are mutants that were not caught, and nothing is argued about.
func (r *results) unexplained() (keys []string) {
	for _, one := range r.Results {
		if r.gaps[one.Key] == "" && (one.Status == campaign.Survived || one.Status == campaign.NotCovered) {
			keys = append(keys, one.Key)
		}
	}
	return keys
}

func (r *results) summary() string {
	return fmt.Sprintf("%d mutants: %s; score %.1f %%; %.0f min", len(r.Results), r.Results.counts(), 100*r.Results.score(), r.Seconds/60)
}

// list is some of the results.
type list []campaign.Result

// count is the number of results with a status.
func (l list) count(statuses ...campaign.Status) int {
	n := 0
	for _, one := range l {
		if slices.Contains(statuses, one.Status) {
			n++
		}
	}
	return n
}

// statuses are all that a result can have, in the order in which they are shown.
var statuses = []campaign.Status{campaign.Killed, campaign.Detected, campaign.Refused, campaign.Survived, campaign.NotCovered, campaign.Equivalent}

// counts are the numbers of each status.
func (l list) counts() string {
	var out []string
	for _, s := range statuses {
		out = append(out, fmt.Sprintf("%d %s", l.count(s), s))
	}
	return strings.Join(out, ", ")
}

// score is the share of the mutants that are not equivalent and were caught.
func (l list) score() float64 {
	all := len(l) - l.count(campaign.Equivalent)
	return float64(l.count(campaign.Killed, campaign.Detected, campaign.Refused)) / float64(max(all, 1))
}
