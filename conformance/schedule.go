package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/nodes"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/internal/usage"
)

// errStopped is why what was not run when Stop was called is invalid.
var errStopped = errors.New("the session was stopped")

// Start finds or builds all programs, brings up the first cells, as many as may run at once, and returns when these are
// ready or have failed; then everything runs in the background. It returns an error only for what the user has to mend
// (a *usage.Error): a target that fails otherwise makes its cell's results invalid. Further calls return the same.
func (s *Session) Start(ctx context.Context) error {
	s.start.Do(func() {
		context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })
		s.startErr = s.startAll()
	})
	return s.startErr
}

// Wait waits until all cells are done. It returns the error of Start, or one like it of a cell that came later: that
// ends the session.
func (s *Session) Wait() error {
	s.workers.Wait()
	return s.usageError()
}

// Stop ends everything that runs, and all targets, at once. It is idempotent.
func (s *Session) Stop() error {
	s.end(errStopped)
	_ = s.Start(s.ctx) // if there was no start, there will be none; if it is under way, it ends
	s.workers.Wait()
	errs := make([]error, len(s.Cells))
	var wg sync.WaitGroup
	for i, c := range s.Cells {
		if c.Target != nil {
			wg.Go(func() { errs[i] = c.Target.Stop() })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// PeakMemory is the most memory that this process and its children held at once, in bytes; with clusters of kind,
// how much less the machine had free. 0 where that cannot be read.
func (s *Session) PeakMemory() int64 { return s.memory.peak.Load() }

func (s *Session) startAll() error {
	groups := groupCells(s.finishIdleCells())
	s.postponeKubectls(groups)
	if err := s.findPrograms(); err != nil {
		s.failUsage(err)
	}
	firstCells := s.startWorkers(groups)
	s.watchMemory()
	firstCells.Wait()
	return s.usageError()
}

// finishIdleCells finishes the cells that have nothing to run, and returns the others, the biggest first: none that takes
// long is left for the end, when nothing else runs beside it.
func (s *Session) finishIdleCells() (busy []*Cell) {
	for _, c := range s.Cells {
		if len(c.jobs) > 0 || c.Plan.NeedsAgents() {
			busy = append(busy, c)
		} else {
			c.Finish(time.Now(), nil)
		}
	}
	slices.SortStableFunc(busy, func(a, b *Cell) int { return cmp.Compare(len(b.jobs), len(a.jobs)) })
	return busy
}

// startWorkers runs groups of cells in the background, as many at once as the session allows. The group that it returns
// is done when the first cell of each worker is up, or has failed; until then no scenario starts.
func (s *Session) startWorkers(groups [][]*Cell) *sync.WaitGroup {
	queue := make(chan []*Cell, len(groups))
	for _, g := range groups {
		queue <- g
	}
	close(queue)
	count := len(groups)
	if s.Parallel > 0 {
		count = min(count, s.Parallel)
	}
	var first sync.WaitGroup
	first.Add(count)
	for range count {
		s.workers.Go(func() {
			waitForOthers := sync.OnceFunc(func() {
				first.Done()
				first.Wait()
			})
			for group := range queue {
				s.runGroup(group, waitForOthers)
			}
		})
	}
	return &first
}

// runGroup runs cells one after the other, each on the target of the one before it. It calls started after each start.
func (s *Session) runGroup(group []*Cell, started func()) {
	for i, c := range group {
		if i > 0 {
			s.passTarget(group[i-1], c)
		}
		s.startCell(c)
		started()
		s.runCell(c)
	}
	last := group[len(group)-1]
	if s.Parallel > 0 && last.Target != nil { // makes room for the next cell
		s.stopTarget(last)
	}
}

// watchMemory notes the peak of the memory that the session takes, until all workers are done.
func (s *Session) watchMemory() {
	measure := measureOwnMemory
	if len(s.Cells) > 0 && s.Cells[0].Plan.Target.Capabilities().Nodes {
		measure = machineMemoryMeter()
	}
	watchCtx, done := context.WithCancel(s.ctx)
	peak := &s.memory.peak
	go wait.UntilWithContext(watchCtx, func(context.Context) { peak.Store(max(peak.Load(), measure())) }, memoryEvery)
	go func() {
		s.workers.Wait()
		done()
	}()
}

// groupCells puts cells together that one cluster serves, one after the other: it takes longer to make than to change its
// authorizer chain.
func groupCells(cells []*Cell) (groups [][]*Cell) {
	for _, c := range cells {
		i := slices.IndexFunc(groups, func(g []*Cell) bool {
			return server.Shared(g[0].Plan.Target, c.Plan.Target) && !runsApart(g, c)
		})
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], c)
	}
	return groups
}

// fullGroup is how many scenarios about authorizer chains one local control plane runs before another one is started for the next
// chain.
const fullGroup = 30

// runsApart reports whether a cell runs sooner on a control plane of its own than after a group. A local one takes seconds, and
// scenarios about chains mostly wait, one at a time, for authorizers that fail or do not answer.
func runsApart(group []*Cell, c *Cell) bool {
	first := group[0].Plan.Target
	if !first.Capabilities().Cheap {
		return false
	}
	isAboutChains := c.Plan.Target.Chain != ""
	if (first.Chain != "") != isAboutChains {
		return true
	}
	return seq.Sum(group, func(cell *Cell) int { return len(cell.jobs) }) >= fullGroup
}

// passTarget gives the target of a cell that is done to the next one, unless the target is broken.
func (s *Session) passTarget(before, next *Cell) {
	if before.Target == nil {
		return
	}
	if before.Err != nil || before.Target.Err() != nil {
		s.stopTarget(before)
		return
	}
	next.Target, before.Target = before.Target, nil
}

// findPrograms finds the programs of all cells, or builds them: that takes all processors for minutes, and is no
// company for scenarios. What cannot be built is an error of its cells, and tried once.
func (s *Session) findPrograms() error {
	failed := map[preparationKey]error{}
	for _, c := range s.Cells {
		o := &c.Plan.Target
		what := preparationKey{
			o.Cell.Kubernetes,
			cmp.Or(o.KubeAPIServerPath, o.Binaries.GivenAPIServer(o.Cell.Name)),
			o.Cell.Nodes,
			o.Cell.ControlPlanes,
		}
		err, tried := failed[what]
		if !tried {
			err = findPrograms(s.ctx, o)
			failed[what] = err
		}
		if err == nil && !c.isKubectlLate {
			c.Plan.Target.Kubectl, err = c.findKubectls(s.ctx)
		}
		c.Err = err
		if usage.Is(err) {
			return fmt.Errorf("%s: %w", o.Cell.Name, err)
		}
	}
	return nil
}

// preparationKey is what decides which programs and node images a cell needs. Cells that agree in it are prepared once.
type preparationKey struct{ kubernetes, program, nodes, controlPlanes string }

func findPrograms(ctx context.Context, o *server.Options) error {
	o.Binaries = cmp.Or(o.Binaries, &local.Binaries{})
	return o.Prepare(ctx)
}

func (s *Session) startCell(c *Cell) {
	if s.ctx.Err() != nil {
		if c.Err == nil {
			c.Err = fmt.Errorf("interrupted before it was started: %w", context.Cause(s.ctx))
		}
		return
	}
	start := time.Now()
	switch {
	case c.Err != nil:
	case c.Target != nil:
		c.Err = c.Target.Switch(s.ctx, c.Plan.Target)
	default:
		c.Target, c.Err = server.Start(s.ctx, c.Plan.Target)
	}
	c.Ready = time.Since(start)
	if c.Err == nil && c.Plan.NeedsNodes() {
		if err := nodes.LoadAgent(s.ctx, c.Target); err != nil {
			c.Err = fmt.Errorf("the node agent's image: %w", err)
		}
	}
	if c.Target != nil {
		c.Witness = c.Target.Witness
	}
	name := c.Plan.Target.Cell.Name
	if usage.Is(c.Err) {
		s.failUsage(fmt.Errorf("%s: %w", name, c.Err))
		return
	}
	if c.Err != nil {
		s.output.say("%s: did not start: %v", name, c.Err)
		return
	}
	if len(c.Witness.Mismatches) > 0 {
		s.output.say("%s: is not what was asked for: %s", name, c.Witness.Mismatches[0])
		return
	}
	s.output.say("%s: %s ready in %.1f s, gate %s", name, c.Witness.GitVersion, c.Ready.Seconds(), c.Target.Facts.Gate)
}

func (s *Session) stopTarget(c *Cell) {
	if err := c.Target.Stop(); err != nil {
		s.output.say("%s: stopping it: %v", c.Plan.Target.Cell.Name, err)
	}
	if plane, isLocal := c.Target.Plane(); isLocal {
		s.countTime(plane.ProcessorTime())
	}
	c.Target = nil
}

// failUsage ends the session with an error that the user has to mend.
func (s *Session) failUsage(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage = cmp.Or(s.usage, err)
	s.end(err)
}

func (s *Session) usageError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usage
}
