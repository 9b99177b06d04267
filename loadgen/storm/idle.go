package storm

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// measureIdle measures what the programs use while no agent asks. If only the API server counts, it continues until the
// number of checks of others is steady, because controllers are busy with new nodes and pods.
func (r *runner) measureIdle(ctx context.Context) {
	if r.Profile.Counts && !r.serverCounts() {
		return
	}
	rounds := slices.Repeat([]map[profile.Server]int64{nil}, steadyRounds)
	for len(rounds) < mostRounds && ctx.Err() == nil {
		now := r.watchIdle(ctx)
		if isSteady(rounds[len(rounds)-steadyRounds], now) && isSteady(rounds[len(rounds)-1], now) {
			r.noteOthers(now)
			return
		}
		rounds = append(rounds, now)
	}
	if ctx.Err() == nil {
		r.noteUneven("it changed in %d times %s before the first block", mostRounds-steadyRounds, r.idleLength())
	}
}

// mostRounds is how often others are counted until the counts agree with the three previous ones. If nodes are not
// ready, controllers mark each of their pods, for minutes and less and less often.
const mostRounds, steadyRounds = 36, 3

// noteUneven notes why the checks of agents' requests cannot be told from those of others: the number of checks of
// others changes. The checks of impersonation are still exact, because nobody else impersonates.
func (r *runner) noteUneven(format string, args ...any) {
	if r.out.OwnUnknown {
		return
	}
	text := "what others ask is not steady: " + fmt.Sprintf(
		format,
		args...) + "; so the checks of the requests themselves are not counted, those of impersonation alone"
	r.Say(text)
	r.out.OwnUnknown, r.out.Notes = true, append(r.out.Notes, text)
}

func (r *runner) idleLength() time.Duration { return min(profile.CacheLife, r.Profile.Block) }

// watchIdle watches once, and returns how many checks of others each server allowed.
func (r *runner) watchIdle(ctx context.Context) map[profile.Server]int64 {
	took, checks := r.idleLength(), map[profile.Server]int64{}
	before, counts := map[profile.Server]map[string]run.Cost{}, map[profile.Server]counters{}
	for name, s := range r.servers {
		before[name] = r.measureUse(s)
		var err error
		if counts[name], err = s.read(); err != nil {
			r.problem(-1, "before anybody asks: %v", err)
		}
	}
	if !clusters.Pause(ctx, took) {
		return nil
	}
	for _, name := range r.Profile.Servers() {
		s := r.servers[name]
		r.idle[name] = map[string]run.Cost{}
		for program, c := range r.measureUse(s) {
			idle := c.CPU - before[name][program].CPU
			r.idle[name][program] = run.Cost{Idle: idle * run.Duration(r.Profile.Block) / run.Duration(took)}
		}
		after, err := s.read()
		if err != nil {
			r.problem(-1, "while nobody asks: %v", err)
			continue
		}
		if _, counts := after.find(decisions); r.serverCounts() && !counts {
			r.problem(-1, "%s has answered, and does not count it: there is no %s among its metrics", name, decisions)
		}
		checks[name] = r.countOthers(name, after.since(counts[name]))
	}
	return checks
}

// isSteady reports whether no server allowed more or fewer checks than before, apart from three standard deviations of
// chance.
func isSteady(before, now map[profile.Server]int64) bool {
	for name, n := range now {
		if before == nil && n > 0 {
			return false
		}
		if change := n - before[name]; float64(change*change) > 9*float64(n+before[name]) {
			return false
		}
	}
	return true
}

// countOthers returns how many checks an API server allowed while no agent asked. If nobody else counts, that number,
// scaled to a block, is subtracted, and checks of impersonation are a problem, because nobody knows whose they are.
func (r *runner) countOthers(name profile.Server, increased []sample) int64 {
	blocks, checks, attempts := float64(r.Profile.Block)/float64(r.idleLength()), 0.0, 0.0
	for _, s := range increased {
		switch {
		case s.family == decisions && s.labels["decision"] == "allowed":
			checks += s.value
		case s.family == authorizationAttempts:
			attempts += s.value
		case s.family == cpuSeconds:
			if _, known := r.idle[name][run.APIServer]; !known {
				r.idle[name][run.APIServer] = run.Cost{Idle: run.Duration(s.value * blocks * float64(time.Second))}
			}
		}
	}
	if !r.serverCounts() {
		return 0
	}
	if attempts > 0 {
		r.problem(
			-1,
			"others impersonate on %s: it counted %.0f checks of impersonation in %s without agents",
			name,
			attempts,
			r.idleLength(),
		)
	}
	r.background[name] = int64(math.Round(checks * blocks))
	r.webhookCalls[name] = int64(math.Round(float64(countWebhookCalls(increased)) * blocks))
	return int64(checks)
}

func (r *runner) noteOthers(checks map[profile.Server]int64) {
	for _, name := range r.Profile.Servers() {
		if r.serverCounts() {
			r.out.Notes = append(r.out.Notes,
				fmt.Sprintf("%s allowed %d checks of others in %s without agents: %d are subtracted from those of each block of %s",
					name, checks[name], r.idleLength(), r.background[name], r.Profile.Block),
			)
		}
	}
}

// watchOthers watches once more when all blocks are over, because what was subtracted has to be what others still ask.
func (r *runner) watchOthers(ctx context.Context) {
	if len(r.out.Problems) > 0 || !r.serverCounts() {
		return
	}
	before := map[profile.Server]int64{}
	for name, n := range r.background {
		before[name] = int64(float64(n) * float64(r.idleLength()) / float64(r.Profile.Block))
	}
	if r.can().Foreign {
		s := r.servers[r.Profile.Servers()[0]]
		admin, _ := s.credentials()
		began, err := findAPIServers(ctx, admin, connections)
		if others := s.unknown(began); err != nil || len(others) > 0 {
			r.problem(-1, "after the last block other API servers answer (%s) than were counted: %v", strings.Join(others, ", "), err)
		}
	}
	if now := r.watchIdle(ctx); ctx.Err() == nil && !isSteady(before, now) {
		r.noteUneven("in %s without agents %v checks before the first block, %v after the last", r.idleLength(), before, now)
	}
}
