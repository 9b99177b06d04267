package certify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/loadgen/pacer"
)

// LoadOptions say how much is asked.
type LoadOptions struct {
	// Rates are in reviews per second. Each is kept up for Length. If there are none, the level is not tried.
	Rates  []int
	Length time.Duration
	// P99 is how long 99 % of the answers may take, measured from when the review should have been sent. An authorizer
	// therefore gains nothing by making the harness wait.
	P99 time.Duration
	// Volume is how many reviews are then asked as fast as they are answered. Idle is the longest pause, after which
	// some more are asked; the pauses before it are shorter.
	Volume int
	Idle   time.Duration
}

// These are the defaults of LoadOptions.
const (
	LoadLength = 5 * time.Second
	LoadP99    = 100 * time.Millisecond
	LoadVolume = 100_000
	LoadIdle   = 31 * time.Second
	// LoadMinimum, LoadP99, LoadVolume and LoadIdle are the least that the level demands.
	LoadMinimum = 500
)

// LoadRates returns the recommended rates.
func LoadRates() []int { return []int{500, 1000, 2000} }

const (
	maxVolume = 10_000_000
	maxRate   = 100_000
	// maxLength is how long a rate can be kept up, and maxIdle how long a pause can be.
	maxLength = 24 * time.Hour
	maxIdle   = time.Hour
)

// Check returns what is wrong with the options.
func (o LoadOptions) Check() error {
	if len(o.Rates) == 0 {
		return nil
	}
	isVolume := 0 <= o.Volume && o.Volume <= maxVolume
	isIdle := 0 <= o.Idle && o.Idle <= maxIdle
	rates := slices.Compact(slices.Sorted(slices.Values(o.Rates)))
	switch {
	case rates[0] < 1 || rates[len(rates)-1] > maxRate:
		return fmt.Errorf("load: %v: a rate is 1 to %d reviews per second", o.Rates, maxRate)
	case len(rates) < len(o.Rates):
		return fmt.Errorf("load: %v: a rate is there twice", o.Rates)
	case o.Length < time.Second || o.Length > maxLength:
		return fmt.Errorf("load: a rate is kept up for 1 s to 24 h, not %s", o.Length)
	case !isVolume || !isIdle:
		return fmt.Errorf("load: a volume of %d and %s idle: expected 0 to %d reviews, and 0 to 1 h", o.Volume, o.Idle, maxVolume)
	case o.P99 <= 0:
		return fmt.Errorf("load: the limit of the 99th percentile is %s, expected more than 0", o.P99)
	}
	return nil
}

const (
	// loadPrefix is the beginning of the name of a check at a rate.
	loadPrefix = "load-"
	// volumeCheck and idleCheck are the checks that follow the rates. reviewsAfterIdle is how many reviews are asked
	// after the last pause.
	volumeCheck      = loadPrefix + "volume"
	idleCheck        = loadPrefix + "idle"
	reviewsAfterIdle = 500
	// maxOutstanding is how many reviews may be unanswered. Further reviews are not sent, and count as dropped.
	maxOutstanding = 5000
)

// isLoadCheck reports whether a check belongs to level load.
func isLoadCheck(check string) bool { return strings.HasPrefix(check, loadPrefix) }

// rateCheck returns the name of the check at a rate.
func rateCheck(rate int) string { return fmt.Sprintf("%s%d", loadPrefix, rate) }

// parts returns the parts of the level that are judged, in order.
func (o LoadOptions) parts() (out []part) {
	for _, rate := range o.Rates {
		out = append(out, partOfLoad(rateCheck(rate)))
	}
	if o.Volume > 0 {
		out = append(out, partOfLoad(volumeCheck), partOfLoad(idleCheck))
	}
	return append(out, minimumLoad)
}

// Stage is what was to be sent in one part of the level. It is the first line of that part's evidence.
type Stage struct {
	// Rate is in reviews per second. It is 0 for the volume and for what follows it.
	Rate    int   `json:"rate"`
	Planned int   `json:"planned"`
	LimitUs int64 `json:"p99LimitUs"`
	// Dropped is how many reviews were not sent because too many were unanswered.
	Dropped int `json:"dropped,omitempty"`
	// Micros is the time from when the first review should have been sent to the last answer.
	Micros int64 `json:"us"`
	// IdleMs is how long nothing was asked before it. Memory is the webhook's memory in bytes, according to its
	// /metrics, before, during and after.
	IdleMs int64   `json:"idleMs,omitempty"`
	Memory []int64 `json:"memory,omitempty"`
	// Right is how many answers of the volume were right. The evidence does not list them one by one.
	Right int `json:"right,omitempty"`
}

// isStage reports whether an answer is the stage of a check.
func isStage(a Answer, check string) bool { return a.Stage != nil && a.Check == check }

// askLoad asks at all selected rates, then the volume, and then some more after pauses.
func (r *runner) askLoad(ctx context.Context) {
	o := r.LoadOptions
	for _, rate := range o.Rates {
		if r.isTried(partOfLoad(rateCheck(rate))) && !r.askAtRate(ctx, rate) {
			return
		}
	}
	isLeftOut := len(o.Rates) == 0 || o.Volume == 0
	if isLeftOut || !r.isTried(partOfLoad(volumeCheck)) {
		return
	}
	r.Runner.Progress(volumeCheck, o.Volume)
	began := time.Now()
	answers := r.askMany(ctx, volumeCheck, o.Volume)
	r.keepStage(volumeCheck, &Stage{Planned: o.Volume, Micros: time.Since(began).Microseconds()}, answers)
	goesOn := !r.HasEnded() && ctx.Err() == nil
	if goesOn && r.isTried(partOfLoad(idleCheck)) {
		r.askAfterPauses(ctx)
	}
}

// idlePause is a time in which nothing is asked. It is ended by a request on a connection that was kept open, or on a
// new one.
type idlePause struct {
	length time.Duration
	isNew  bool
}

// pauses returns the pauses. The last one is the longest.
func (o LoadOptions) pauses() []idlePause {
	return []idlePause{{o.Idle / 10, false}, {o.Idle / 10, true}, {o.Idle / 3, true}, {o.Idle / 3, false}, {o.Idle, false}}
}

// askAfterPauses asks after pauses. The first question after each is one that must be refused, and more follow after
// the last pause.
func (r *runner) askAfterPauses(ctx context.Context) {
	pauses := r.LoadOptions.pauses()
	rounds := r.Plan.silenceRounds(len(pauses))
	began, stage := time.Now(), &Stage{Planned: len(rounds) + reviewsAfterIdle, IdleMs: r.LoadOptions.Idle.Milliseconds()}
	var answers []Answer
	for i, round := range slices.Collect(slices.Chunk(rounds, questionsPerRound)) {
		r.Runner.Progress(fmt.Sprintf("%s: nothing for %s, then", idleCheck, pauses[i].length), len(round))
		answers = append(answers, r.askAroundPause(ctx, idleCheck, r.client, pauses[i].length, pauses[i].isNew, round)...)
	}
	answers = append(answers, r.askMany(ctx, idleCheck, reviewsAfterIdle)...)
	stage.Micros = time.Since(began).Microseconds()
	r.keepStage(idleCheck, stage, answers)
}

// askMany asks n reviews as fast as they are answered.
func (r *runner) askMany(ctx context.Context, check string, n int) []Answer {
	return r.askInParallel(
		ctx,
		check,
		parallelAskers,
		[]*client{r.client},
		pickQuestions(r.Plan.repeatableQuestions(), n, scatteredQuestion),
	)
}

// keepStage keeps what was asked, and those answers that are wrong.
func (r *runner) keepStage(check string, stage *Stage, answers []Answer) {
	wrong := slices.DeleteFunc(answers, func(a Answer) bool { return !r.Plan.isWrong(a) })
	stage.Right = len(answers) - len(wrong)
	r.Answers = append(r.Answers, Answer{Check: check, Stage: stage})
	r.Answers = append(r.Answers, wrong...)
}

// askAtRate sends reviews as the schedule says, whether answers have come or not. It reports whether the webhook can be
// reached.
func (r *runner) askAtRate(ctx context.Context, rate int) bool {
	length := r.LoadOptions.Length
	sends := pacer.Plan{Arrivals: pacer.Constant, Agents: 1, Rate: float64(rate), Length: length}.Stripe(0, 1)
	check := rateCheck(rate)
	r.Runner.Progress(check, len(sends))
	stage := &Stage{Rate: rate, Planned: len(sends), LimitUs: r.LoadOptions.P99.Microseconds()}
	every := 0 // how many reviews are between two readings of the webhook's memory; 0 for no readings
	if length >= steadyFrom {
		every = max(len(sends)/memorySamples, 1)
	}
	r.client.ask(ctx, check, r.Plan.Scenario[0]) // opens the connection, so that this is not measured
	began := time.Now()
	answers := r.askPaced(ctx, sends, check, stage, every)
	stage.Micros = time.Since(began).Microseconds()
	if every > 0 {
		stage.Memory = append(stage.Memory, r.client.memory(ctx))
	}
	r.Answers = append(r.Answers, Answer{Check: check, Stage: stage})
	r.Answers = append(r.Answers, slices.DeleteFunc(answers, func(a Answer) bool { return a.Vector == "" })...)
	return ctx.Err() == nil && !slices.ContainsFunc(answers, func(a Answer) bool { return slices.Contains(unreachableFaults, a.Fault) })
}

// askPaced sends each review when it is due, and returns the answers in the order of the schedule. A review that was
// not sent has an empty answer.
func (r *runner) askPaced(ctx context.Context, sends []pacer.Send, check string, stage *Stage, every int) []Answer {
	answers := make([]Answer, len(sends))
	slots := make(chan struct{}, maxOutstanding)
	var all sync.WaitGroup
	defer all.Wait()
	began := time.Now()
	for i, s := range sends {
		if every > 0 && i%every == 0 {
			stage.Memory = append(stage.Memory, r.client.memory(ctx))
		}
		due := began.Add(s.At)
		if !clusters.Pause(ctx, time.Until(due)) {
			break
		}
		select {
		case slots <- struct{}{}:
		default:
			stage.Dropped++
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			delay := time.Since(due)
			a := r.client.ask(ctx, check, scatteredQuestion(r.Plan.Scenario, i))
			a.Micros, a.LateUs = time.Since(due).Microseconds(), max(delay.Microseconds(), 0)
			answers[i] = a
		})
	}
	return answers
}
