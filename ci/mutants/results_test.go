package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/internal/seq"
)

// Names of files in the output folder: the results, and the whole table for people.
const (
	resultsFile = "results.json"
	tableFile   = "mutants.md"
	openFile    = "open.yaml"
)

// standing is what a list says of a mutant that is not caught.
type standing string

const (
	// equivalent: it is no change that a client can see. unreachable: it is equivalent because no client reaches its
	// place. Both are argued, as are gaps, which can be seen, but no scenario of the suite can be expected to look.
	equivalent  standing = "equivalent"
	unreachable standing = "unreachable"
	gap         standing = "gap"
	// open: it is known not to be caught, and nothing is argued about it yet.
	open standing = "open"
)

// argument says why a mutant is no change that a client can see, or why the suite does not detect it.
type argument struct {
	// Key and Snippet are those of the mutant; both have to agree, so that an argument does not outlive the code
	// it is about.
	Key     string `json:"key"`
	Snippet string `json:"snippet"`
	Reason  string `json:"reason"`

	standing standing
}

// arguments are what the lists say, by the mutants' keys.
type arguments map[string]argument

func (a arguments) is(key string, which ...standing) bool {
	return slices.Contains(which, a[key].standing)
}

// argued says whether there is a reason why a mutant is not caught.
func (a arguments) argued(key string) bool { return a.is(key, equivalent, unreachable, gap) }

// add puts entries of a list into the arguments, as far as they fit the mutants.
func (a arguments) add(path string, mutants map[string]Mutant, which standing, entries []argument) error {
	var errs []error
	for _, e := range entries {
		m, known := mutants[e.Key]
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("%s: there is no mutant %s", path, e.Key))
		case which != open && m.Snippet != e.Snippet:
			errs = append(errs, fmt.Errorf("%s: mutant %s changes %q, not %q", path, e.Key, m.Snippet, e.Snippet))
		case which != open && strings.TrimSpace(e.Reason) == "":
			errs = append(errs, fmt.Errorf("%s: mutant %s has no reason", path, e.Key))
		case a[e.Key].standing != "":
			errs = append(errs, fmt.Errorf("%s: mutant %s is there twice, or argued in another list too", path, e.Key))
		}
		e.standing = which
		a[e.Key] = e
	}
	return errors.Join(errs...)
}

// loadArguments reads all lists in a folder.
func loadArguments(folder string, s *Sources) (arguments, error) {
	out, mutants := arguments{}, byKey(s.Mutants)
	var argued struct {
		Equivalent []argument `json:"equivalent"`
		Gaps       []argument `json:"gaps"`
	}
	path := filepath.Join(folder, "equivalent.yaml")
	if err := load(path, &argued); err != nil {
		return nil, err
	}
	err := errors.Join(out.add(path, mutants, equivalent, argued.Equivalent), out.add(path, mutants, gap, argued.Gaps))
	places, wrong := loadUnreachable(filepath.Join(folder, "unreachable.yaml"), s.FileSet, s.Files)
	for _, m := range s.Mutants {
		i := slices.IndexFunc(places, func(u unreachableCode) bool { return u.Covers(m.File, m.Line) })
		if i >= 0 && !out.argued(m.Key) {
			reason := "No client reaches it. " + strings.TrimSpace(places[i].Reason)
			out[m.Key] = argument{Key: m.Key, Snippet: m.Snippet, Reason: reason, standing: unreachable}
		}
	}
	path = filepath.Join(folder, openFile)
	var keys map[string]Status
	if err := load(path, &keys); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		wrong = errors.Join(wrong, out.add(path, mutants, open, []argument{{Key: key}}))
		if !slices.Contains(openStatuses, keys[key]) {
			wrong = errors.Join(wrong, fmt.Errorf("%s: mutant %s is %q: want one of %q", path, key, keys[key], openStatuses))
		}
	}
	return out, errors.Join(err, wrong)
}

// openStatuses are those of open mutants. One that is not run has not been looked at since it, or this list, is there.
var openStatuses = []Status{Survived, NotCovered, "not run"}

// load reads a file of YAML.
func load(path string, to any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("a list of mutants that are not caught: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, to); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func byKey(mutants []Mutant) map[string]Mutant {
	out := map[string]Mutant{}
	for _, m := range mutants {
		out[m.Key] = m
	}
	return out
}

// results are those of a run, and of the one that it resumes.
type results struct {
	// Kubernetes is the release whose code is mutated; Digest stands for the mutated source.
	Kubernetes string `json:"kubernetes"`
	Digest     string `json:"digest"`
	// Seconds is the time of all runs that went into the results.
	Seconds float64 `json:"seconds"`
	Results list    `json:"results"`

	mutants []Mutant
	parts   []Part
	arguments
}

// resume takes over the caught mutants of an earlier run on the same release, as far as they are derived in the
// same way today.
func (r *results) resume(folder string) error {
	path := filepath.Join(folder, resultsFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("-resume: %w", err)
	}
	var old results
	if err := json.Unmarshal(data, &old); err != nil {
		return fmt.Errorf("-resume: %s: %w", path, err)
	}
	if old.Kubernetes != r.Kubernetes {
		return fmt.Errorf("-resume: the results in %s are of Kubernetes %s, not %s", folder, old.Kubernetes, r.Kubernetes)
	}
	r.Seconds = old.Seconds
	today := byKey(r.mutants)
	for _, one := range old.Results {
		m := today[one.Key]
		if one.Status.Caught() && m.Line == one.Line && m.Snippet == one.Snippet && m.Change == one.Change {
			one.Mutant = m
			r.Results = append(r.Results, one)
		}
	}
	return nil
}

func (r *results) caught(key string) bool {
	return slices.ContainsFunc(r.Results, func(one Result) bool { return one.Key == key && one.Status.Caught() })
}

// write adds the equivalent mutants that were not run and the reasons, sorts, and writes the file.
func (r *results) write(folder string) error {
	seen := map[string]bool{}
	for i, one := range r.Results {
		seen[one.Key] = true
		r.Results[i].Reason = r.arguments[one.Key].Reason
	}
	for _, m := range r.mutants {
		if r.is(m.Key, equivalent, unreachable) && !seen[m.Key] {
			r.Results = append(r.Results, Result{Mutant: m, Status: Equivalent, Reason: r.arguments[m.Key].Reason})
		}
	}
	slices.SortFunc(r.Results, func(x, y Result) int { return x.Number - y.Number })
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, resultsFile), append(data, '\n'), 0o644)
}

// openNow is what open.yaml should say: of the mutants that are not caught, those that nothing is argued about.
func (r *results) openNow() list {
	return r.Results.where(func(one Result) bool {
		return !r.argued(one.Key) &&
			(one.Status == Survived || one.Status == NotCovered)
	})
}

// writeOpen writes open.yaml as it should be now, for whoever has looked at it to copy.
func (r *results) writeOpen(folder string) error {
	out := strings.Builder{}
	out.WriteString(openHead)
	for _, one := range r.openNow() {
		_, _ = fmt.Fprintf(&out, "%q: %s\n", one.Key, one.Status)
	}
	return os.WriteFile(filepath.Join(folder, openFile), []byte(out.String()), 0o644)
}

// openHead begins every open.yaml.
const openHead = `# Mutants that are known not to be caught, and that nothing is argued about yet. They count as survived. The whole run
# writes this file into its output folder, and fails where it differs from the one in ci/mutants; a sample fails only for
# a mutant that is not caught and stands in no list. What is argued belongs into equivalent.yaml or unreachable.yaml.
`

// wrong is what the lists should not say, or should and do not, and of a whole run which parts do not have the share
// that they should. That a mutant is to be taken off the open ones is only a remark where not all were run.
func (r *results) wrong(whole bool) (remark string, err error) {
	var errs []error
	say := func(what string, l list) {
		if len(l) > 0 {
			errs = append(errs, fmt.Errorf("%s: %s", what, strings.Join(l.keys(), " ")))
		}
	}
	say("argued not to be caught, but caught", r.Results.where(func(one Result) bool {
		return r.argued(one.Key) && one.Status.Caught()
	}))
	say("not caught, and in none of equivalent.yaml, unreachable.yaml and open.yaml", r.openNow().where(func(one Result) bool {
		return !r.is(one.Key, open)
	}))
	if closed := r.Results.where(func(one Result) bool { return r.is(one.Key, open) && one.Status.Caught() }); whole {
		say("caught now, take them off open.yaml", closed)
		for _, p := range r.parts {
			if failed, _ := r.Results.selectPart(p).scores(); failed < p.Wanted {
				errs = append(errs,
					fmt.Errorf("%s: %.1f %% of the mutants failed a scenario; %.0f %% are wanted", p.Name, failed, p.Wanted),
				)
			}
		}
	} else if len(closed) > 0 {
		remark = "caught now, to be taken off open.yaml: " + strings.Join(closed.keys(), " ") + "\n"
	}
	return remark, errors.Join(errs...)
}

// summary has both scores, of all and of each part.
func (r *results) summary() string {
	line := func(l list) string {
		failed, caught := l.scores()
		return fmt.Sprintf("%.1f %% failed, %.1f %% failed or detected", failed, caught)
	}
	out := fmt.Sprintf("%d mutants: %s; %.0f min\n%s", len(r.Results), r.Results.counts(), r.Seconds/60, line(r.Results))
	for _, p := range r.parts {
		some := r.Results.selectPart(p)
		if n := len(some) - some.count(Equivalent); n > 0 {
			out += fmt.Sprintf("\n%s: %d mutants not argued equivalent, %s", p.Name, n, line(some))
		}
	}
	return out
}

// list is some of the results.
type list []Result

func (l list) where(is func(Result) bool) (out list) {
	for _, one := range l {
		if is(one) {
			out = append(out, one)
		}
	}
	return out
}

func (l list) selectPart(p Part) list {
	return l.where(func(one Result) bool { return one.Part == p.Name })
}

func (l list) keys() []string {
	return seq.Map(l, func(one Result) string { return one.Key })
}

// count is the number of results with one of the statuses.
func (l list) count(which ...Status) int {
	return len(l.where(func(one Result) bool { return slices.Contains(which, one.Status) }))
}

// statuses are all that a result can have, in the order in which they are shown: first those that are caught.
var statuses = []Status{Killed, Detected, Refused, Survived, NotCovered, Equivalent}

// counts are the numbers of each status.
func (l list) counts() string {
	return strings.Join(seq.Map(statuses, func(s Status) string { return fmt.Sprintf("%d %s", l.count(s), s) }), ", ")
}

// scores are the shares, in percent, of the mutants that are not equivalent: with which a scenario failed, and that
// were caught in whatever way.
func (l list) scores() (failed, caught float64) {
	share := func(of ...Status) float64 {
		return 100 * float64(l.count(of...)) / float64(max(len(l)-l.count(Equivalent), 1))
	}
	return share(Killed), share(statuses[:3]...)
}
