package certify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/reports/load/histogram"
)

// Load is about right answers in time at stated rates. It is tried if rates are stated.
const Load CertificationLevel = "load"

// LoadOptions say how much is asked.
type LoadOptions struct {
	// Rates are reviews per second, each kept up for Length.
	Rates  []int
	Length time.Duration
	// P99 is what 99 % of the answers may take, counted from when the review was meant to be sent: a server that
	// makes the harness wait gains nothing by it.
	P99 time.Duration
	// Volume is how many reviews are asked after that, as fast as they are answered, and Idle how long nothing is
	// asked then, before some more.
	Volume int
	Idle   time.Duration
}

// The defaults of LoadOptions.
const (
	LoadLength = 5 * time.Second
	LoadP99    = 100 * time.Millisecond
	LoadVolume = 100_000
	LoadIdle   = 31 * time.Second
)

// LoadRates are the rates that are recommended.
func LoadRates() []int { return []int{500, 1000, 2000} }

// Check says what is wrong with the options.
func (o LoadOptions) Check() error {
	switch {
	case len(o.Rates) == 0:
		return nil
	case slices.Min(o.Rates) < 1 || slices.Max(o.Rates) > maxRate:
		return fmt.Errorf("load: %v: a rate is 1 to %d reviews per second", o.Rates, maxRate)
	case o.Length < time.Second || o.Length > time.Hour:
		return fmt.Errorf("load: a rate is kept up for 1 s to 1 h, not %s", o.Length)
	case o.Volume < 0 || o.Volume > maxVolume || o.Idle < 0 || o.Idle > time.Hour:
		return fmt.Errorf("load: a volume of %d and %s idle: expected 0 to %d reviews, and 0 to 1 h", o.Volume, o.Idle, maxVolume)
	case o.P99 <= 0:
		return fmt.Errorf("load: the limit of the 99th percentile is %s, expected more than 0", o.P99)
	}
	return nil
}

const (
	// loadCheck begins the name of the check at a rate.
	loadCheck = "load-"
	// volume and idle are what comes after the rates; afterIdle is how many reviews are asked then.
	volume    = loadCheck + "volume"
	idle      = loadCheck + "idle"
	afterIdle = 500
	maxVolume = 10_000_000
	maxRate   = 100_000
	// outstanding is how many reviews may be unanswered. What would come on top of them is not sent, and counts as
	// dropped.
	outstanding = 5000
	// lag is by how much a review may be sent late, maxLate how many of a thousand may be later: beyond that it is
	// the harness that was measured.
	lag     = 50 * time.Millisecond
	maxLate = 10
)

// Stage is what was meant to be sent at one rate. It is the first line of the evidence of a rate.
type Stage struct {
	Rate    int   `json:"rate"`
	Planned int   `json:"planned"`
	LimitUs int64 `json:"p99LimitUs"`
	// Dropped were not sent, as too many were unanswered.
	Dropped int `json:"dropped,omitempty"`
	// Micros is how long it took from the first that was meant to be sent to the last answer.
	Micros int64 `json:"us"`
	// Right is how many answers of the volume were right. They are not in the evidence one by one.
	Right int `json:"right,omitempty"`
}

// load asks at each rate, in order.
func (r *runner) load(ctx context.Context) {
	r.Step(string(Load), func() {
		for _, rate := range r.LoadOptions.Rates {
			sends := pacer.Plan{Arrivals: pacer.Constant, Agents: 1, Rate: float64(rate), Length: r.LoadOptions.Length}.Stripe(0, 1)
			r.Runner.Progress(fmt.Sprintf("%s%d", loadCheck, rate), len(sends))
			if !r.rate(ctx, rate, sends) {
				return
			}
		}
		if r.LoadOptions.Volume > 0 && r.amount(ctx, volume, r.LoadOptions.Volume) {
			r.Runner.Progress(fmt.Sprintf("%s: nothing for %s, then", idle, r.LoadOptions.Idle), afterIdle)
			pause(ctx, r.LoadOptions.Idle)
			r.amount(ctx, idle, afterIdle)
		}
	})
}

// amount asks so many, a few at a time, and keeps the answers that are wrong.
func (r *runner) amount(ctx context.Context, check string, n int) bool {
	if check == volume {
		r.Runner.Progress(check, n)
	}
	stage, before, began := &Stage{Planned: n}, len(r.Answers), time.Now()
	vectors := r.repeatable()
	ok := r.together(ctx, check, n, lanes, func(i int) Question { return vectors[i*7919%len(vectors)] })
	r.Answers = slices.DeleteFunc(r.Answers, func(a Answer) bool {
		right := a.Check == check && !a.Control && len(judge(r.Plan.byID[a.Vector], a)) == 0
		if right {
			stage.Right++
		}
		return right
	})
	stage.Micros = time.Since(began).Microseconds()
	r.Answers = slices.Insert(r.Answers, min(before, len(r.Answers)), Answer{Check: check, Stage: stage})
	return ok && ctx.Err() == nil
}

// rate asks as the schedule says, whether answers have come or not.
func (r *runner) rate(ctx context.Context, rate int, sends []pacer.Send) bool {
	check := fmt.Sprintf("%s%d", loadCheck, rate)
	vectors := r.Plan.Scenario
	answers := make([]Answer, len(sends))
	slots := make(chan struct{}, outstanding)
	stage := &Stage{Rate: rate, Planned: len(sends), LimitUs: r.LoadOptions.P99.Microseconds()}
	var all sync.WaitGroup
	r.client.ask(ctx, check, vectors[0]) // so that connecting is not measured
	began := time.Now()
	for i, s := range sends {
		due := began.Add(s.At)
		pause(ctx, time.Until(due))
		if ctx.Err() != nil {
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
			late := time.Since(due)
			a := r.client.ask(ctx, check, vectors[i*7919%len(vectors)])
			a.Micros, a.LateUs = time.Since(due).Microseconds(), max(late.Microseconds(), 0)
			answers[i] = a
		})
	}
	all.Wait()
	stage.Micros = time.Since(began).Microseconds()
	r.Answers = append(r.Answers, Answer{Check: check, Stage: stage})
	r.Answers = append(r.Answers, slices.DeleteFunc(answers, func(a Answer) bool { return a.Vector == "" })...)
	for _, a := range answers {
		if slices.Contains(unreachable, a.Fault) {
			return false
		}
	}
	return ctx.Err() == nil
}

// Rate is what was measured at one rate.
type Rate struct {
	Asked    int     `json:"reviewsPerSecond"`
	Achieved float64 `json:"achievedPerSecond"`
	P50      float64 `json:"p50Ms"`
	P99      float64 `json:"p99Ms"`
	Max      float64 `json:"maxMs"`
	Limit    float64 `json:"p99LimitMs"`
	// Wrong answers, those sent late by more than 50 ms, and those not sent.
	Wrong   int `json:"wrong"`
	Late    int `json:"late"`
	Dropped int `json:"dropped"`
	// Inconclusive says that the harness could not keep the rate itself.
	Inconclusive bool `json:"inconclusive,omitempty"`
}

// rates measures what the evidence shows of each rate.
func (b *Plan) rates(answers []Answer) (out []Rate, planned, answered int) {
	at := map[string]int{}
	counts := map[string]*histogram.Histogram{}
	for _, a := range answers {
		if s := a.Stage; s != nil && a.Check == fmt.Sprintf("%s%d", loadCheck, s.Rate) {
			if _, twice := at[a.Check]; twice {
				continue
			}
			at[a.Check] = len(out)
			counts[a.Check] = &histogram.Histogram{}
			planned += s.Planned
			out = append(out, Rate{Asked: s.Rate, Dropped: s.Dropped, Limit: float64(s.LimitUs) / 1000, Achieved: float64(s.Micros)})
		}
	}
	for _, a := range answers {
		if a.Check == volume || a.Check == idle {
			if a.Stage != nil {
				planned, answered = planned+a.Stage.Planned, answered+a.Stage.Right
			} else {
				answered++
			}
			continue
		}
		i, known := at[a.Check]
		if !known || a.Stage != nil || a.Control {
			continue
		}
		counts[a.Check].Record(time.Duration(a.Micros) * time.Microsecond)
		if a.LateUs > lag.Microseconds() {
			out[i].Late++
		}
		if v, ok := b.byID[a.Vector]; ok && len(judge(v, a)) > 0 {
			out[i].Wrong++
		}
	}
	for check, i := range at {
		h, r := counts[check], &out[i]
		ms := func(d time.Duration) float64 { return float64(d.Round(10*time.Microsecond).Microseconds()) / 1000 }
		answered += int(h.Count())
		r.P50, r.P99, r.Max = ms(h.Quantile(0.5)), ms(h.Quantile(0.99)), ms(h.Max())
		if us := r.Achieved; us > 0 {
			r.Achieved = float64(int(float64(h.Count())/us*1e7)) / 10
		}
		r.Inconclusive = int64(r.Late)*1000 > h.Count()*maxLate
	}
	return out, planned, answered
}

// findings of a rate beside wrong answers. Where the harness was late itself, nothing is said about time.
func (r Rate) findings() map[string]string {
	out := map[string]string{}
	if r.Inconclusive {
		return out
	}
	if r.Dropped > 0 {
		out["does-not-keep-up"] = fmt.Sprintf("%s%d: %d reviews were not sent, as %d had no answer", loadCheck, r.Asked, r.Dropped, outstanding)
	}
	if r.P99 >= r.Limit {
		out["slow-under-load"] = fmt.Sprintf("%s%d: 99 %% of the answers came within %.2f ms, expected less than %.2f ms", loadCheck, r.Asked, r.P99, r.Limit)
	}
	return out
}

// excused says that an answer did not come where the harness was late itself. A wrong answer has no excuse.
func excused(a Answer, rates []Rate) bool {
	return a.Fault != "" && slices.ContainsFunc(rates, func(r Rate) bool { return r.Inconclusive && a.Check == fmt.Sprintf("%s%d", loadCheck, r.Asked) })
}

// isLoad says whether a check is one at a rate.
func isLoad(check string) bool { return strings.HasPrefix(check, loadCheck) }
