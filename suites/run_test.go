package suites_test

import (
	"os/signal"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/onsi/ginkgo/v2"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/suites"
	"github.com/authzconf/authzconf/verdicts"
)

const waiting = `
description: A request, long after the other.
source: {document: test, section: interrupts}
level: core
requires: {gate: any}
requestors:
  alice: {user: alice}
steps:
  - request: {by: alice, verb: get, path: /version}
    expect: {outcome: allowed}
  - wait: 1m
  - request: {by: alice, verb: get, path: /version}
    expect: {outcome: allowed}
`

// TestInterruptedBeforeTheFirstSpec has Ctrl-C arrive when Ginkgo has taken over
// but runs no spec yet. It then runs none, and nothing must wait for one.
func TestInterruptedBeforeTheFirstSpec(t *testing.T) {
	files, none := fstest.MapFS{"waits.yaml": {Data: []byte(waiting)}}, fstest.MapFS{}
	set, err := scenarios.Load(files, none)
	if err != nil {
		t.Fatal(err)
	}
	cells, err := matrix.Matrix{Provider: "local", Kubernetes: []string{matrix.Newest()}, Gate: "default", Binaries: &local.Binaries{}}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := session.Plan(set, cells, session.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT) // as the command line has it
	defer stop()
	ginkgo.BeforeSuite(func(spec ginkgo.SpecContext) {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
		<-spec.Done()
		<-ctx.Done()
	})
	ended := make(chan *suites.Run)
	go func() {
		run, err := suites.Execute(ctx, suites.Options{
			Texts: reports.Texts{Set: set, Scenarios: files, Fixtures: none}, Plan: plan, Events: func(session.Event) {},
		})
		if err != nil {
			t.Error(err)
		}
		ended <- run
	}()
	select {
	case run := <-ended:
		if run == nil {
			return
		}
		if r := run.Report.Cells[0].Results; len(r) != 1 || r[0].Verdict != verdicts.Invalid {
			t.Errorf("%+v", r)
		}
		if run.Report.Outcome.Result != reports.RunInvalid {
			t.Errorf("outcome %s", run.Report.Outcome.Result)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it waits for specs that never run")
	}
}
