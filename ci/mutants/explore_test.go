package mutants

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/suites/explore"
)

// corpusOf is what generated cases reached, as the corpus of the generator has it: a case is in it that reached a place in
// more of its requests than any before, counted in powers of two.
type corpusOf struct {
	shared *sharedFile
	seen   map[[2]int]bool // places, and in how many requests of a case
	now    map[int]int     // of the case that is being sent
	number int
	made   cases.Choice
	kept   []string // choices
	err    error
}

func (c *corpusOf) sent(number int, made cases.Choice) {
	if number != c.number {
		c.close()
		c.number, c.made = number, made
	}
	numbers, err := c.shared.take()
	c.err = errors.Join(c.err, err)
	for _, n := range numbers {
		c.now[n]++
	}
}

// close ends a case.
func (c *corpusOf) close() {
	before := len(c.seen)
	for place, times := range c.now {
		c.seen[[2]int{place, bits.Len(uint(times))}] = true
	}
	if clear(c.now); len(c.seen) > before && c.number > 0 {
		c.kept = append(c.kept, c.made.String())
	}
}

func (c *corpusOf) reached(n int) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(c.seen)), func(k [2]int) bool { return k[0] == n })
}

// TestExploreCoverage runs generated cases, EXPLORE_CASES of each of the seeds 1 to 3, against the kube-apiserver with all
// mutants in it, none of them chosen, and lists the places that they do not reach and no argument says why: what the
// generator has to be taught. What reached something new it writes as the generator's corpus, if EXPLORE_CORPUS names the file. It wants model and server to agree, and no argument to be wrong.
func TestExploreCoverage(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("EXPLORE_CASES"))
	if err != nil {
		t.Skip("EXPLORE_CASES says how many cases a seed gets (make explore-coverage)")
	}
	ctx, binaries, release := interruptible(t), &local.Binaries{Progress: t.Output()}, local.Newest()
	sources, err := loadSources(ctx, binaries, release)
	if err != nil {
		t.Fatal(err)
	}
	argued, err := loadArguments(ownFolder, sources)
	if err != nil {
		t.Fatal(err)
	}
	program, err := sources.Texts.build(ctx, binaries, release, "mutants")
	if err != nil {
		t.Fatal(err)
	}
	shared, err := newSharedFile(len(sources.Mutants), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.close()
	cells, err := matrix.Matrix{Provider: "local", Kubernetes: []string{release.Minor}, Gate: "both", Binaries: binaries}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	for i := range cells {
		cells[i].KubeAPIServerPath, cells[i].KubeAPIServerEnv = program, []string{SharedVariable + "=" + shared.path}
	}
	corpus := &corpusOf{shared: shared, seen: map[[2]int]bool{}, now: map[int]int{}}
	for seed := range int64(3) {
		report, _, err := explore.Run(ctx, explore.Options{Cells: cells, Cases: n, Seed: seed + 1, Sent: corpus.sent, Events: func(e explore.Event) {
			if e.Text != "" {
				_, _ = fmt.Fprintln(t.Output(), e.Text)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := report.Broken(); err != nil || report.Disagreed() {
			t.Errorf("seed %d: model and server disagree: %t; %v", report.Seed, report.Disagreed(), err)
		}
	}
	if corpus.close(); corpus.err != nil {
		t.Fatal(corpus.err)
	}
	found := &results{Kubernetes: release.Version, mutants: sources.Mutants, parts: sources.Parts, arguments: argued}
	r := newReach(found, corpus.reached)
	for _, m := range r.missing {
		_, _ = fmt.Fprintf(t.Output(), "not reached: %s:%d, %s: %s\n", m.File, m.Line, m.Function, m.Snippet)
	}
	_, _ = fmt.Fprintln(t.Output(), r.total())
	_, _ = fmt.Fprintf(t.Output(), "%d counts of places, brought about by %d cases\n", len(corpus.seen), len(corpus.kept))
	if file := os.Getenv("EXPLORE_CORPUS"); file != "" {
		slices.Sort(corpus.kept)
		raw, err := cases.YAML(slices.Compact(corpus.kept))
		if err = errors.Join(err, os.WriteFile(file, raw, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range sources.Mutants {
		if corpus.reached(m.Number) && found.is(m.Key, unreachable) {
			t.Errorf("%s: argued to be unreachable, but reached: %s", m.Key, m.Snippet)
		}
	}
}
