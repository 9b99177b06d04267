package mutants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
)

// upstreamSample is how many generated mutants are tried if -sample does not say it.
const upstreamSample = 100

// TestUpstream counts how many broken API servers the tests in upstream/ catch: of those made by hand all, and of the
// generated ones of the impersonation filter a sample, among those that a scenario of ours catches. It writes the page that
// UPSTREAM_PAGE names.
func TestUpstream(t *testing.T) {
	suite := newUpstreamSuite(t)
	if _, err := flags.check(); err != nil {
		t.Fatal(err)
	}
	if flags.sample == 0 {
		flags.sample = upstreamSample
	}
	ctx := interruptible(t)
	run, found, err := flags.build(ctx, t)
	if err != nil {
		t.Fatal(err)
	}
	page := upstreamPage{kubernetes: found.Kubernetes, seed: flags.seed}
	cells := upstreamCells(run.Plan)
	for _, b := range brokenByHand(t) {
		r, err := suite.tryByHand(ctx, cells[0].target, b)
		if err != nil {
			t.Fatalf("%s: %v", b.name, err)
		}
		run.Progress(fmt.Sprintf("%-12s %s %s", r.Status, r.Key, r.Scenario))
		page.byHand = append(page.byHand, r)
	}
	ofFilter := slices.DeleteFunc(slices.Clone(found.mutants), func(m Mutant) bool { return m.Part != found.parts[0].Name })
	chosen := flags.choose(ofFilter, regexp.MustCompile(""), found)
	page.generated, err = suite.tryGenerated(ctx, run, cells, chosen)
	if err != nil {
		t.Fatal(err)
	}
	if path := os.Getenv("UPSTREAM_PAGE"); path != "" {
		if err := os.WriteFile(path, []byte(page.markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = fmt.Fprintln(t.Output(), page.summary())
}

// brokenServer is a kube-apiserver that somebody broke.
type brokenServer struct {
	name, program string
	env           []string
}

// brokenByHand builds the servers of faults.yaml and concurrency.yaml, or finds them in the cache.
func brokenByHand(t *testing.T) (all []brokenServer) {
	t.Helper()
	folder := t.TempDir()
	for _, f := range parseFaults(t, faultsFile, "faults") {
		all = append(all, brokenServer{name: f.Name, program: buildInto(t, folder, f)})
	}
	atOnce := parseFaults(t, concurrencyFile, "concurrency")
	program := buildFaults(t, &local.Binaries{Progress: os.Stderr}, local.Newest(), atOnce)
	for i, f := range atOnce {
		shared := filepath.Join(folder, f.Name+".shared")
		writeChoice(t, shared, i+1, len(atOnce))
		all = append(all, brokenServer{name: f.Name, program: program, env: []string{SharedVariable + "=" + shared}})
	}
	return all
}

// tryByHand runs the tests on a broken server, and if one fails, on another one: both have to fail.
func (u *upstreamSuite) tryByHand(ctx context.Context, o server.Options, b brokenServer) (r Result, err error) {
	o.KubeAPIServerPath, o.KubeAPIServerEnv = b.program, b.env
	r = Result{Mutant: Mutant{Key: b.name}, Status: Survived}
	for range 2 {
		failed, err := u.runOnNew(ctx, o)
		if err != nil || failed == "" {
			return r, err
		}
		r.Scenario = failed
	}
	r.Status = Killed
	return r, nil
}

// runOnNew runs the tests on a server that is started for it.
func (u *upstreamSuite) runOnNew(ctx context.Context, o server.Options) (failed string, err error) {
	s, err := server.Start(ctx, o)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	kubeconfig, err := u.prepare(ctx, s)
	if err != nil {
		return "", err
	}
	return u.run(ctx, kubeconfig, true)
}

// upstreamCell is a server that is one generated mutant after the other, in one state of the feature gate.
type upstreamCell struct {
	target server.Options
	gateOn bool

	server     *mutantServer
	kubeconfig string
	// reached are the mutants whose places the tests reach, and atStart those that are reached before.
	reached, atStart sets.Set[int]
}

// upstreamCells are those of the usual authorizer chain, gate on first.
func upstreamCells(plan []conformance.CellPlan) []*upstreamCell {
	var cells []*upstreamCell
	for _, gate := range []scenarios.Gate{scenarios.GateOn, scenarios.GateOff} {
		for _, cell := range plan {
			if cell.Target.Chain == "" && cell.Target.Cell.Gate == gate {
				cells = append(cells, &upstreamCell{target: cell.Target, gateOn: gate == scenarios.GateOn})
				break
			}
		}
	}
	return cells
}

// tryGenerated runs the tests against each mutant. A mutant is tried with the gate off only if it is not caught with the
// gate on.
func (u *upstreamSuite) tryGenerated(ctx context.Context, run *Campaign, cells []*upstreamCell, mutants []Mutant) (all list, err error) {
	defer func() {
		for _, cell := range cells {
			err = errors.Join(err, cell.stop())
		}
	}()
	for i, m := range mutants {
		r := Result{Mutant: m, Status: NotCovered}
		for _, cell := range cells {
			if err := u.tryMutant(ctx, run, cell, &r); err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.Key, err)
			}
			if r.Status.Caught() {
				break
			}
		}
		run.Progress(fmt.Sprintf("[%d/%d] %-12s %s %s", i+1, len(mutants), r.Status, r.Key, r.Scenario))
		all = append(all, r)
	}
	return all, nil
}

// tryMutant runs the tests against a mutant in one cell, if they reach its place. A mutant is caught if a test fails with it,
// none fails without it, and one fails with it again.
func (u *upstreamSuite) tryMutant(ctx context.Context, run *Campaign, cell *upstreamCell, r *Result) error {
	if err := u.start(ctx, run, cell); err != nil {
		return err
	}
	switch {
	case !cell.reached.Has(r.Number) && !cell.atStart.Has(r.Number):
		return nil
	case !cell.reached.Has(r.Number) || r.File == cacheFile:
		return u.tryFromStart(ctx, run, cell, r)
	}
	r.Status = Survived
	failed, err := u.runAs(ctx, cell, r.Number)
	if err != nil || failed == "" {
		return err
	}
	without, err := u.runAs(ctx, cell, 0)
	if err != nil {
		return err
	}
	if without != "" { // the mutant has spoiled the server, or the machine is too busy
		return errors.Join(cell.stop(), u.tryFromStart(ctx, run, cell, r))
	}
	again, err := u.runAs(ctx, cell, r.Number)
	if err == nil && again != "" {
		r.Status, r.Scenario, r.Cell = Killed, failed, cell.target.Cell.Name
	}
	return err
}

// tryFromStart runs the tests on servers that are the mutant from their start.
func (u *upstreamSuite) tryFromStart(ctx context.Context, run *Campaign, cell *upstreamCell, r *Result) error {
	r.Status = Survived
	for range 2 {
		s, err := run.startTwice(ctx, cell.target, r.Number)
		if err != nil {
			noteFailedStart(cell, r, err)
			return context.Cause(ctx)
		}
		failed := "(nodes cannot be created)"
		if kubeconfig, broken := u.prepare(ctx, s.target); broken == nil {
			failed, err = u.run(ctx, kubeconfig, cell.gateOn)
		}
		if err = errors.Join(err, s.stop()); err != nil || failed == "" {
			return err
		}
		r.Scenario = failed
	}
	r.Status, r.Cell = Killed, cell.target.Cell.Name
	return nil
}

// noteFailedStart takes a mutant for refused that does not start. One that runs, and that only our witness refuses, survives.
func noteFailedStart(cell *upstreamCell, r *Result, err error) {
	if !errors.Is(err, errWitness) {
		r.Status, r.Scenario, r.Cell = Refused, "(the API server does not start)", cell.target.Cell.Name
	}
}

// start starts the cell's server, unless it runs. The tests have to pass on it, and what they reach is noted.
func (u *upstreamSuite) start(ctx context.Context, run *Campaign, cell *upstreamCell) (err error) {
	if cell.server != nil && cell.server.served < mutantsPerServer && cell.server.target.Err() == nil {
		return nil
	}
	if err := cell.stop(); err != nil {
		return err
	}
	if cell.server, err = run.startTwice(ctx, cell.target, 0); err != nil {
		return err
	}
	if cell.kubeconfig, err = u.prepare(ctx, cell.server.target); err != nil {
		return err
	}
	atStart, err := cell.server.shared.take()
	if err != nil {
		return err
	}
	failed, err := u.runAs(ctx, cell, 0)
	if err != nil {
		return err
	}
	if failed != "" {
		return fmt.Errorf("%s: the unmutated program does not pass %q", cell.target.Cell.Name, failed)
	}
	reached, err := cell.server.shared.take()
	cell.atStart, cell.reached = sets.New(atStart...), sets.New(reached...)
	return err
}

// runAs runs the tests on the cell's server while it is a mutant.
func (u *upstreamSuite) runAs(ctx context.Context, cell *upstreamCell, mutant int) (failed string, err error) {
	cell.server.served++
	if err := cell.server.shared.choose(mutant); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, cell.server.shared.choose(0)) }()
	return u.run(ctx, cell.kubeconfig, cell.gateOn)
}

func (c *upstreamCell) stop() error {
	s := c.server
	c.server = nil
	if s == nil {
		return nil
	}
	return s.stop()
}
