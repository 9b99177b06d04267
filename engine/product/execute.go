package product

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// Run is one run of a plan.
type Run struct {
	*PreparedRun
	Invocation *Invocation
	// Command is the command line, program name included.
	Command []string
	// Say is called with lines about the run as a whole. It may be called from several goroutines.
	Say func(text string)
	// Status is called with what a display shows until the next call. It may be called from several goroutines.
	Status func(text string)
	// Judged is called with each verdict as soon as it is known. It may be called from several goroutines.
	Judged func(c Case, r reports.Result)
}

// RunResult is what a run has made.
type RunResult struct {
	Report *reports.Report
	Log    *record.Log
	// Interrupted reports whether the run ended early.
	Interrupted bool
}

// Execute runs a plan, judges what was recorded, and makes the report. An error means that there is nothing to report. A run
// that was interrupted, or broke when a case had already failed, has a report, and the error with which its plan ended is in
// there.
func Execute(ctx context.Context, r Run) (*RunResult, error) {
	log, command := record.New(), r.Command
	if r.Product.Conceal != nil {
		command = r.Product.Conceal(command)
	}
	head := header{
		Product: r.Product.Name, SuiteVersion: r.Invocation.Version, Command: command, Seed: r.Invocation.Seed,
		Started: time.Now().UTC(), Cases: r.Plan.Cases(), Inputs: r.Invocation.recordedInputs(),
	}
	if err := log.Append(headerKey, head); err != nil {
		return nil, err
	}
	byID := map[string]Case{}
	for _, c := range head.Cases {
		byID[c.ID] = c
	}
	results := &knownResults{results: map[string]reports.Result{}}
	observer := Observer{Say: r.Say, Status: r.Status, Done: func(id string) {
		result := judge(r.Plan, byID[id], log.View())
		results.add(id, result)
		r.Judged(byID[id], result)
	}}
	runErr := r.Plan.Run(ctx, log, observer)
	isInterrupted := ctx.Err() != nil
	if runErr != nil && !isInterrupted && !results.hasFailed() {
		return nil, runErr
	}
	end := ending{Finished: time.Now().UTC()}
	switch {
	case runErr != nil && !isInterrupted: // what was seen to fail before it broke is kept
		end.Interrupted = strings.ReplaceAll(runErr.Error(), "\n", "; ")
	case isInterrupted:
		end.Interrupted = describeInterruption(context.Cause(ctx), runErr)
	}
	if err := log.Append(endingKey, end); err != nil {
		return nil, errors.Join(runErr, err)
	}
	report, err := conclude(r.PreparedRun, log.View(), log.Head(), results)
	if err != nil {
		return nil, errors.Join(runErr, err)
	}
	return &RunResult{Report: report, Log: log, Interrupted: isInterrupted}, nil
}

// describeInterruption returns why a run ended early, in one line: what interrupted it, and the plan's error if it says
// anything else.
func describeInterruption(cause, err error) string {
	if err == nil || err.Error() == cause.Error() || err.Error() == context.Canceled.Error() {
		return cause.Error()
	}
	return strings.ReplaceAll(cause.Error()+"; "+err.Error(), "\n", "; ")
}

// judge judges a case. A panic of the judge is a fault of the harness, and makes this case invalid alone.
func judge(p Plan, c Case, view record.View) (result reports.Result) {
	defer func() {
		if broken := recover(); broken != nil {
			result = reports.Result{
				Verdict: verdicts.Invalid, Blame: verdicts.BlameHarness,
				Reason: fmt.Sprintf("panic: %v\n%s", broken, debug.Stack()),
			}
		}
		result.Case, result.Level = c.Name, c.Level
	}()
	return p.Judge(c.ID, view)
}

// knownResults are verdicts on cases whose evidence was complete while the run still went on.
type knownResults struct {
	mu      sync.Mutex
	results map[string]reports.Result
}

func (k *knownResults) add(id string, r reports.Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.results[id] = r
}

// hasFailed reports whether a case has failed so far.
func (k *knownResults) hasFailed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.results {
		if r.Verdict == verdicts.Failed {
			return true
		}
	}
	return false
}

// conclude judges all cases of a plan that are not known already and makes the report. It depends on its arguments alone.
func conclude(p *PreparedRun, view record.View, head record.Head, known *knownResults) (*reports.Report, error) {
	began, err := record.Read[header](view, headerKey)
	if err != nil {
		return nil, err
	}
	ended, err := record.Read[ending](view, endingKey)
	if err != nil {
		return nil, err
	}
	var results []reports.Result
	for _, c := range p.Plan.Cases() {
		if c.NotRun != nil {
			continue
		}
		result, isKnown := known.results[c.ID]
		if !isKnown {
			result = judge(p.Plan, c, view)
		}
		results = append(results, result)
	}
	report, err := p.Plan.Conclude(results, view)
	if err != nil {
		return nil, err
	}
	report.APIVersion, report.Kind, report.Product = reports.ReportVersion, reports.ReportKind, p.Product.Name
	report.SuiteVersion, report.Command, report.Seed = began.SuiteVersion, began.Command, began.Seed
	report.Started, report.Finished, report.Record = began.Started, ended.Finished, head
	if ended.Interrupted != "" {
		report.AddUnknown("the run ended early: " + ended.Interrupted)
	}
	report.Require = p.Rules.Require
	report.ApplyKnownFailing(p.Rules.KnownFailing)
	report.Conclude()
	return report, nil
}
