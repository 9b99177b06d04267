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
	"github.com/authzconf/authzconf/ci/mutants/coverage"
	"github.com/authzconf/authzconf/ci/mutants/mutate"
	"github.com/authzconf/authzconf/ci/mutants/program"
	"github.com/authzconf/authzconf/clusters/local"
)

// resultsFile is the name of the results in the output folder.
const resultsFile = "results.json"

// argument says why a mutant is no change that a client can see, or why the suite
// does not notice it.
type argument struct {
	// Key and Snippet are those of the mutant; both have to agree, so that an
	// argument does not outlive the code it is about.
	Key     string `json:"key"`
	Snippet string `json:"snippet"`
	Reason  string `json:"reason"`
}

// addUnreachable argues the mutants within statements that no client reaches.
func addUnreachable(equivalent map[string]argument, arguments []coverage.Argument, mutants []mutate.Mutant) {
	for _, m := range mutants {
		for _, a := range arguments {
			if _, ok := equivalent[m.Key]; !ok && a.Covers(m.File, m.Line) {
				equivalent[m.Key] = argument{Key: m.Key, Snippet: m.Snippet, Reason: "No client reaches it. " + strings.TrimSpace(a.Reason)}
			}
		}
	}
}

// arguments are the reviewed ones, by the mutants' keys.
type arguments struct {
	// equivalent mutants are no change that a client can see.
	equivalent map[string]argument
	// gaps can be seen, but no scenario of the suite can be expected to look.
	gaps map[string]argument
}

// loadArguments reads the reviewed arguments.
func loadArguments(path string, mutants []mutate.Mutant) (arguments, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return arguments{}, fmt.Errorf("the arguments for equivalent mutants: %w", err)
	}
	var file struct {
		Equivalent []argument `json:"equivalent"`
		Gaps       []argument `json:"gaps"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return arguments{}, fmt.Errorf("%s: %w", path, err)
	}
	known := map[string]mutate.Mutant{}
	for _, m := range mutants {
		known[m.Key] = m
	}
	out := arguments{equivalent: map[string]argument{}, gaps: map[string]argument{}}
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
			out.equivalent[a.Key] = a
		} else {
			out.gaps[a.Key] = a
		}
	}
	return out, errors.Join(errs...)
}

// book holds the results of a run, and of the one that it resumes.
type book struct {
	// Kubernetes is the release whose package is mutated; Digest stands for the
	// mutated source.
	Kubernetes string `json:"kubernetes"`
	Digest     string `json:"digest"`
	// Seconds is the time of all runs that went into the results.
	Seconds float64           `json:"seconds"`
	Results []campaign.Result `json:"results"`

	sources *program.Sources
	arguments
}

func newBook(r local.Release, s *program.Sources, a arguments) *book {
	return &book{Kubernetes: r.Version, Digest: s.Digest(), sources: s, arguments: a}
}

// resume takes over the caught mutants of an earlier run on the same release, as
// far as they are derived in the same way today.
func (b *book) resume(folder string) error {
	data, err := os.ReadFile(filepath.Join(folder, resultsFile))
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	var old book
	if err := json.Unmarshal(data, &old); err != nil {
		return fmt.Errorf("--resume: %s: %w", filepath.Join(folder, resultsFile), err)
	}
	if old.Kubernetes != b.Kubernetes {
		return fmt.Errorf("--resume: the results in %s are of Kubernetes %s, not %s", folder, old.Kubernetes, b.Kubernetes)
	}
	b.Seconds = old.Seconds
	today := map[string]mutate.Mutant{}
	for _, m := range b.sources.Mutants {
		today[m.Key] = m
	}
	for _, r := range old.Results {
		m := today[r.Key]
		if r.Status.Caught() && m.Line == r.Line && m.Snippet == r.Snippet && m.Change == r.Change {
			r.Mutant = m
			b.Results = append(b.Results, r)
		}
	}
	return nil
}

func (b *book) caught(key string) bool {
	return slices.ContainsFunc(b.Results, func(r campaign.Result) bool { return r.Key == key && r.Status.Caught() })
}

func (b *book) add(r campaign.Result) { b.Results = append(b.Results, r) }

// complete adds the equivalent mutants that were not run and the reasons, and
// sorts.
func (b *book) complete() {
	seen := map[string]bool{}
	for i := range b.Results {
		seen[b.Results[i].Key] = true
		b.Results[i].Reason = b.equivalent[b.Results[i].Key].Reason
		if r := b.Results[i]; !r.Status.Caught() && r.Status != campaign.Equivalent {
			b.Results[i].Reason = b.gaps[r.Key].Reason
		}
	}
	for _, m := range b.sources.Mutants {
		if a, ok := b.equivalent[m.Key]; ok && !seen[m.Key] {
			b.add(campaign.Result{Mutant: m, Status: campaign.Equivalent, Reason: a.Reason})
		}
	}
	slices.SortFunc(b.Results, func(x, y campaign.Result) int { return x.Number - y.Number })
}

func (b *book) write(folder string) error {
	b.complete()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, resultsFile), append(data, '\n'), 0o644)
}

// count is the number of results with a status.
func (b *book) count(statuses ...campaign.Status) int {
	n := 0
	for _, r := range b.Results {
		if slices.Contains(statuses, r.Status) {
			n++
		}
	}
	return n
}

func (b *book) caughtCount() int {
	return b.count(campaign.Killed, campaign.Noticed, campaign.Refused)
}

// score is the share of the mutants that are not equivalent and were caught.
func (b *book) score() float64 {
	all := len(b.Results) - b.count(campaign.Equivalent)
	if all == 0 {
		return 0
	}
	return float64(b.caughtCount()) / float64(all)
}

// contradictions are mutants that were caught, against what is argued.
func (b *book) contradictions() []string {
	var keys []string
	for _, r := range b.Results {
		_, equivalent := b.equivalent[r.Key]
		if _, gap := b.gaps[r.Key]; (equivalent || gap) && r.Status.Caught() {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// unexplained are mutants that were not caught, and nothing is argued about.
func (b *book) unexplained() []string {
	var keys []string
	for _, r := range b.Results {
		_, gap := b.gaps[r.Key]
		if !gap && (r.Status == campaign.Survived || r.Status == campaign.Unreached) {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

func (b *book) summary() string {
	return fmt.Sprintf("%d mutants: %d killed, %d noticed, %d refused, %d survived, %d not come by, %d equivalent; score %.1f %%; %.0f min",
		len(b.Results), b.count(campaign.Killed), b.count(campaign.Noticed), b.count(campaign.Refused),
		b.count(campaign.Survived), b.count(campaign.Unreached), b.count(campaign.Equivalent), 100*b.score(), b.Seconds/60)
}
