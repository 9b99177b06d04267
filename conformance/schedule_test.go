package conformance_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/conformance/matrix/matrixtest"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// queued is a session of three cells that run one after the other, each with one
// scenario. change may spoil a cell.
func queued(t *testing.T, observer product.Observer, change func(i int, o *server.Options)) *conformance.Session {
	t.Helper()
	if testing.Short() {
		t.Skip("starts control planes")
	}
	set, err := scenarios.Load(fstest.MapFS{"short.yaml": {Data: []byte(short)}}, fstest.MapFS{})
	if err != nil {
		t.Fatal(err)
	}
	cells := matrixtest.NewestCells(t, matrix.GateAll)
	for i := range cells {
		change(i, &cells[i])
	}
	plan, err := conformance.PlanCells(set, cells, conformance.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	s := conformance.New(plan, conformance.Output{Seed: 1, Log: record.New(), Observer: observer})
	s.Parallel = 1
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestParallel runs cells one after the other: a control plane is gone before the
// next one starts, every cell has its result, and memory was measured.
func TestParallel(t *testing.T) {
	var mu sync.Mutex
	var running []int
	s := queued(t, product.Observer{Say: func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(text, "ready in") {
			running = append(running, len(childrenThatRun(t, "kube-apiserver")))
		}
	}}, func(int, *server.Options) {})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Cells {
		if results := c.Results(); len(results) != 1 || results[0].Verdict != verdicts.Passed {
			t.Errorf("%s: %+v", c.Plan.Target.Cell.Name, results)
		}
		if c.Witness.GitVersion == "" || c.Target != nil {
			t.Errorf("%s: witness %q, target %v", c.Plan.Target.Cell.Name, c.Witness.GitVersion, c.Target)
		}
	}
	if got := fmt.Sprint(running); got != "[1 1 1]" {
		t.Errorf("API servers that ran when another was ready: %s", got)
	}
	if left := childrenThatRun(t, "kube-apiserver"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if mb := s.PeakMemory() >> 20; mb < 100 || mb > 4000 {
		t.Errorf("peak memory %d MiB", mb)
	}
}

// TestUsageErrorOfALaterCell is found when other cells are done already. It ends
// the session all the same, and what was not run for it is not told as news.
func TestUsageErrorOfALaterCell(t *testing.T) {
	var mu sync.Mutex
	judged := 0
	s := queued(t, product.Observer{Done: func(string) {
		mu.Lock()
		defer mu.Unlock()
		judged++
	}}, func(i int, o *server.Options) {
		if i == 1 {
			o.FeatureGates = map[string]bool{"Bogus": true}
		}
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatalf("the first cell is sound: %v", err)
	}
	err := s.Wait()
	if !usage.Is(err) || !strings.HasPrefix(err.Error(), s.Cells[1].Plan.Target.Cell.Name+": ") {
		t.Errorf("error %v", err)
	}
	if results := s.Cells[2].Results(); results[0].Verdict != verdicts.Invalid {
		t.Errorf("%+v", results)
	}
	if judged != 1 {
		t.Errorf("%d results were told of", judged)
	}
}

// TestInterruptedWhileCellsWait has Ctrl-C arrive when one cell is done. The
// others are invalid, and never start.
func TestInterruptedWhileCellsWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	ready := 0
	s := queued(t, product.Observer{Say: func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(text, "ready in") {
			ready++
		}
	}, Done: func(string) { cancel() }}, func(int, *server.Options) {})
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Cells[1:] {
		results := c.Results()
		if r := results[0]; r.Verdict != verdicts.Invalid || r.Blame != verdicts.BlameEnvironment ||
			!strings.HasPrefix(r.Reason, "interrupted before it was started: ") {
			t.Errorf("%s: %+v", c.Plan.Target.Cell.Name, r)
		}
	}
	if ready != 1 {
		t.Errorf("%d cells were started", ready)
	}
}

func TestFitting(t *testing.T) {
	if n := conformance.Fitting("local"); n < 1 {
		t.Errorf("%d cells fit", n)
	}
}

// TestStopWithoutStart leaves nobody waiting.
func TestStopWithoutStart(t *testing.T) {
	s := queued(t, product.Observer{}, func(int, *server.Options) {})
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Cells {
		if results := c.Results(); results[0].Verdict != verdicts.Invalid {
			t.Errorf("%+v", results)
		}
	}
}
