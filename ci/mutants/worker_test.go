package mutants

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// mutantsPerServer is how many mutants one server is before another takes its place: what scenarios leave behind
// makes a server slower.
const mutantsPerServer = 40

// worker tries one mutant after the other in one cell, and keeps a server.
type worker struct {
	campaign *Campaign
	base     *cellBaseline
	kept     *mutantServer
}

// drop ends the server, if there is one.
func (w *worker) drop() error {
	s := w.kept
	w.kept = nil
	if s == nil {
		return nil
	}
	return s.stop()
}

// server is the unmutated server, started if there is none.
func (w *worker) server(ctx context.Context) (*mutantServer, error) {
	if w.kept != nil && w.kept.served < mutantsPerServer && w.kept.target.Err() == nil {
		return w.kept, nil
	}
	if err := w.drop(); err != nil {
		return nil, err
	}
	s, err := w.campaign.startTwice(ctx, w.base.target, 0)
	if err == nil {
		w.kept = s
	}
	return s, err
}

// mutant tries a mutant, if it is reached in the cell.
func (w *worker) mutant(ctx context.Context, result *Result) error {
	begin := time.Now()
	candidates := w.base.candidates(result.Number)
	if len(candidates) == 0 {
		return nil
	}
	result.Status, result.broken = Survived, 0
	if err := w.cell(ctx, candidates, result); err != nil {
		return err
	}
	if result.Status.Caught() {
		result.Cell = w.base.target.Cell.Name
	}
	result.Took += float64(time.Since(begin).Milliseconds()) / 1000
	return nil
}

// cell tries the candidates, on a server that was other mutants before, or on one that is this mutant
// from its start.
func (w *worker) cell(ctx context.Context, candidates []*scenarios.Scenario, result *Result) error {
	if w.base.needsStart(result.Mutant) {
		return w.fresh(ctx, candidates, result)
	}
	s, err := w.server(ctx)
	if err != nil {
		return err
	}
	s.served++
	if err := s.shared.choose(result.Number); err != nil {
		return err
	}
	w.campaign.scenarios(ctx, s, w.base, candidates, livePatience, result)
	if err := s.shared.choose(0); err != nil {
		return err
	}
	if result.broken == livePatience && !result.Status.Caught() && ctx.Err() == nil {
		// Nothing can be set up on this server. Maybe one that is the mutant from its start does not even get there.
		return errors.Join(w.drop(), w.fresh(ctx, candidates, result))
	}
	if ctx.Err() != nil || !result.Status.Caught() {
		return context.Cause(ctx)
	}
	// What catches the mutant has to pass on the same server without it.
	o := s.try(ctx, candidates[indexOf(candidates, result.Scenario)])
	sound := o.Verdict == verdicts.Passed || o.unsteady
	if ctx.Err() != nil ||
		sound && result.Status == Killed {
		return context.Cause(ctx)
	}
	if err := w.drop(); err != nil || sound {
		return err
	}
	*result = Result{Mutant: result.Mutant, Status: Survived, Tried: result.Tried, Unsteady: result.Unsteady}
	return w.fresh(ctx, candidates, result)
}

// fresh tries the candidates on a server that is the mutant from its start. What that catches has to be as it should
// on an unmutated server that is started after it: a full disk stops both.
func (w *worker) fresh(ctx context.Context, candidates []*scenarios.Scenario, result *Result) error {
	start, inTime, limit := w.campaign.startTwice, ctx, slowStart*w.base.start
	hurry := result.broken > 0
	if hurry { // it is known not to work: it is not worth waiting until it gives up
		var cancel context.CancelFunc
		inTime, cancel = context.WithTimeoutCause(
			ctx,
			limit,
			errors.New("not ready in several times the time that it takes without the mutant"),
		)
		defer cancel()
		start = w.campaign.start
	}
	s, err := start(inTime, w.base.target, result.Number)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case usage.Is(err):
		return err
	case err != nil:
		result.Status, result.Scenario, result.Difference = Refused, "(witness)", firstLine(err.Error())
	default:
		w.campaign.scenarios(ctx, s, w.base, candidates, freshPatience, result)
		if err := s.stop(); err != nil {
			return err
		}
	}
	if ctx.Err() != nil || !result.Status.Caught() {
		return context.Cause(ctx)
	}
	if err := w.drop(); err != nil {
		return err
	}
	begin := time.Now()
	sound, err := w.server(ctx)
	if err != nil {
		return fmt.Errorf("the unmutated program does not start either: %w", err)
	}
	same := hurry && time.Since(begin) > limit // the machine is slow then, not the mutant
	if i := indexOf(candidates, result.Scenario); i >= 0 {
		same = sound.try(ctx, candidates[i]).Verdict != verdicts.Passed
	}
	if same && ctx.Err() == nil {
		*result = Result{Mutant: result.Mutant, Status: Survived, Tried: result.Tried, Unsteady: append(result.Unsteady, result.Scenario)}
	}
	return context.Cause(ctx)
}

func indexOf(all []*scenarios.Scenario, id string) int {
	return slices.IndexFunc(all, func(s *scenarios.Scenario) bool { return s.ID == id })
}

// After so many scenarios in a row that cannot be set up no more are run: on a server that became the mutant while it
// ran, and on one that is it from its start.
const (
	livePatience  = 3
	freshPatience = 20
)

// slowStart is how many times longer than an unmutated server one may take that has been seen not to work.
const slowStart = 4

// scenarios runs candidates until one kills the mutant: those that wait last.
func (c *Campaign) scenarios(
	ctx context.Context,
	s *mutantServer,
	base *cellBaseline,
	candidates []*scenarios.Scenario,
	patience int,
	result *Result,
) {
	quick, waiting := c.killers.order(result.Mutant, base, candidates)
	if c.Limit > 0 && c.Limit < len(quick) {
		quick, waiting = quick[:c.Limit], nil
	}
	c.quick(ctx, s, quick, patience, result)
	if !result.Status.Caught() && result.broken < patience && ctx.Err() == nil {
		c.waiting(ctx, s, waiting, result)
	}
}

// sharedFile is the file through which a running program is told which mutant to be, and notes the mutants it
// comes by.
type sharedFile struct {
	file *os.File
	path string // by which the program opens it
	size int    // of the notes
}

// newSharedFile makes the file for mutants 1 to n, with mutant chosen.
func newSharedFile(n, chosen int) (_ *sharedFile, err error) {
	f, err := os.CreateTemp("", "authzconf-mutants-")
	if err != nil {
		return nil, err
	}
	s := &sharedFile{file: f, path: f.Name(), size: n + 1}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	// Where programs can open each other's files, it needs no name: so nothing is left of it, even if this program
	// is killed.
	if open := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()); isFile(open) {
		s.path = open
		if err := os.Remove(f.Name()); err != nil {
			return nil, err
		}
	}
	if err := f.Truncate(int64(SharedHeader + s.size)); err != nil {
		return nil, err
	}
	return s, s.choose(chosen)
}

// choose makes the running program another mutant; 0 is the unmutated program.
func (s *sharedFile) choose(mutant int) error {
	header := binary.LittleEndian.AppendUint32(nil, uint32(mutant))
	if _, err := s.file.WriteAt(header, 0); err != nil {
		return fmt.Errorf("choosing a mutant: %w", err)
	}
	return nil
}

// take returns the mutants reached since the last call.
func (s *sharedFile) take() ([]int, error) {
	data := make([]byte, s.size)
	if _, err := s.file.ReadAt(data, SharedHeader); err != nil {
		return nil, fmt.Errorf("reading which mutants were reached: %w", err)
	}
	if _, err := s.file.WriteAt(make([]byte, s.size), SharedHeader); err != nil {
		return nil, fmt.Errorf("clearing which mutants were reached: %w", err)
	}
	var reached []int
	for n, b := range data {
		if b != 0 {
			reached = append(reached, n)
		}
	}
	return reached, nil
}

func (s *sharedFile) close() {
	_ = s.file.Close()
	if s.path == s.file.Name() {
		_ = os.Remove(s.path)
	}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
