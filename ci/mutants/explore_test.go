package mutants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/explore"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// exploration sends generated cases to the kube-apiserver with all mutants in it.
type exploration struct {
	sources *Sources
	found   *results
	program string
	cases   int
}

// newExploration builds the program, unless no environment variable called name says how many cases there are to be.
func newExploration(ctx context.Context, t *testing.T, name string) *exploration {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		t.Skipf("%s says how many cases a seed gets (make explore-coverage, make mutants-arguments)", name)
	}
	binaries, release := &local.Binaries{Progress: t.Output()}, local.Newest()
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
	return &exploration{
		sources: sources, program: program, cases: n,
		found: &results{Kubernetes: release.Version, mutants: sources.Mutants, parts: sources.Parts, arguments: argued},
	}
}

// cells are API servers that are the mutant which is chosen in the shared file.
func (x *exploration) cells(t *testing.T, gate scenarios.Gate, shared *sharedFile) []server.Options {
	cells, err := matrix.Matrix{
		Provider:   "local",
		Kubernetes: []string{local.Newest().Minor},
		Gates:      matrix.Gates{gate},
		Binaries:   &local.Binaries{Progress: t.Output()},
	}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	for i := range cells {
		cells[i].KubeAPIServerPath, cells[i].KubeAPIServerEnv = x.program, []string{SharedVariable + "=" + shared.path}
	}
	return cells
}

// disagreement sends the cases of a seed, and is an error that says what disagrees. After each request it calls sent, if there is one.
func (x *exploration) disagreement(
	ctx context.Context,
	t *testing.T,
	cells []server.Options,
	seed int64,
	sent func(int, cases.Choice),
) error {
	plan := explore.NewPlan(explore.Options{Cells: cells, Cases: x.cases, Seed: seed, Sent: sent})
	made, err := product.Execute(ctx, product.Run{
		PreparedRun: &product.PreparedRun{Product: explore.Product, Plan: plan},
		Invocation:  product.NewInvocation(nil, "", t.Output()),
		Command:     []string{"authzconf", "explore"},
		Say:         func(text string) { _, _ = fmt.Fprintln(t.Output(), text) },
		Status:      func(string) {},
		Judged:      func(product.Case, reports.Result) {},
	})
	if err != nil {
		return err
	}
	for _, g := range made.Report.Groups {
		for _, r := range g.Cases {
			if r.Verdict == verdicts.Failed {
				return fmt.Errorf("seed %d: model and server disagree: %s", seed, r.Reason)
			}
		}
	}
	if o := made.Report.Outcome; o.Result != verdicts.Passed {
		return errors.New(strings.Join(o.Reasons, "; "))
	}
	return nil
}

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

// TestExploreCoverage runs generated cases, EXPLORE_CASES of each of the seeds 1 to 3, with no mutant chosen, and lists the
// places that they do not reach and no argument says why: what the generator has to be taught. If EXPLORE_CORPUS names a file,
// the cases that reached something new are written to it as the generator's corpus. It wants model and server to agree, and
// no argument to be wrong.
func TestExploreCoverage(t *testing.T) {
	ctx := interruptible(t)
	x := newExploration(ctx, t, "EXPLORE_CASES")
	shared, err := newSharedFile(len(x.sources.Mutants), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.close()
	corpus := &corpusOf{shared: shared, seen: map[[2]int]bool{}, now: map[int]int{}}
	for seed := range int64(3) {
		if err := x.disagreement(ctx, t, x.cells(t, matrix.GateBoth, shared), seed+1, corpus.sent); err != nil {
			t.Error(err)
		}
	}
	if corpus.close(); corpus.err != nil {
		t.Fatal(corpus.err)
	}
	r := newReach(x.found, corpus.reached)
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
	for _, m := range x.sources.Mutants {
		if corpus.reached(m.Number) && x.found.is(m.Key, unreachable) {
			t.Errorf("%s: argued to be unreachable, but reached: %s", m.Key, m.Snippet)
		}
	}
}

// TestArgumentsHold attacks half of the mutants that are argued to be equivalent, those that -seed draws, by generated
// cases, ARGUED_CASES each: an argument is wrong if model and server disagree where they agree with no mutant chosen.
func TestArgumentsHold(t *testing.T) {
	ctx := interruptible(t)
	x := newExploration(ctx, t, "ARGUED_CASES")
	argued := slices.DeleteFunc(slices.Clone(x.sources.Mutants), func(m Mutant) bool { return !x.found.is(m.Key, equivalent, unreachable) })
	random := rand.New(rand.NewPCG(uint64(flags.seed), 0)) //nolint:gosec // half that anybody can draw again
	random.Shuffle(len(argued), func(i, j int) { argued[i], argued[j] = argued[j], argued[i] })
	chosen := append([]Mutant{{Key: "no mutant"}}, argued[:(len(argued)+1)/2]...)
	_, _ = fmt.Fprintf(t.Output(), "%d of %d mutants that are argued to be equivalent\n", len(chosen)-1, len(argued))
	t.Run("mutants", func(t *testing.T) { // ends when all that run side by side have ended
		for _, m := range chosen {
			t.Run(m.Key, func(t *testing.T) {
				t.Parallel()
				if ctx.Err() != nil {
					t.Skip("interrupted")
				}
				shared, err := newSharedFile(len(x.sources.Mutants), m.Number)
				if err != nil {
					t.Fatal(err)
				}
				defer shared.close()
				if err := x.disagreement(ctx, t, x.cells(t, scenarios.GateOn, shared), flags.seed, nil); err != nil {
					t.Errorf("%s (%s): %v", m.Snippet, m.Change, err)
				}
			})
		}
	})
}
