package certify

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

// Load is about right answers in time at stated rates. It is tried if rates are stated.
const Load CertificationLevel = "load"

// LoadOptions say how much is asked.
type LoadOptions struct {
	Rates  []int // reviews per second, each kept up for Length
	Length time.Duration
	// P99 is what 99 % of the answers may take, from when the review was to be sent: making the harness wait gains nothing.
	P99 time.Duration
	// Volume is how many reviews are then asked as fast as they are answered, Idle how long nothing is before some more.
	Volume int
	Idle   time.Duration
	// Soak is how long SoakRate reviews per second are asked after all that; 0 is not at all.
	Soak     time.Duration
	SoakRate int
}

// The defaults of LoadOptions.
const (
	LoadLength = 5 * time.Second
	LoadP99    = 100 * time.Millisecond
	LoadVolume = 100_000
	LoadIdle   = 31 * time.Second
	// SoakLength and SoakRate are what level soak is at least; LoadLeast, LoadP99, LoadVolume and LoadIdle are level load's.
	SoakLength = 10 * time.Minute
	SoakRate   = 100
	LoadLeast  = 500
)

// Soak is about right answers over a long time that do not become slower, in a memory that does not grow. It is tried
// if that is asked for.
const Soak CertificationLevel = "soak"

// LoadRates are the rates that are recommended.
func LoadRates() []int { return []int{500, 1000, 2000} }

// Check says what is wrong with the options.
func (o LoadOptions) Check() error {
	switch {
	case o.Soak != 0 && (o.Soak < time.Second || o.Soak > 24*time.Hour || o.SoakRate < 1 || o.SoakRate > maxRate):
		return fmt.Errorf("soak: %s at %d reviews per second: expected 1 s to 24 h, at 1 to %d", o.Soak, o.SoakRate, maxRate)
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
	soak      = "soak"
	maxVolume = 10_000_000
	maxRate   = 100_000
	// outstanding is how many reviews may be unanswered. What would come on top is not sent, and counts as dropped.
	outstanding = 5000
	// lag is how late a review may be sent, maxLate how many of a thousand may be later: or the harness was measured.
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
	// IdleMs is how long nothing was asked before it, Memory the webhook's bytes by /metrics, before, meanwhile and after.
	IdleMs int64   `json:"idleMs,omitempty"`
	Memory []int64 `json:"memory,omitempty"`
	// Right is how many answers of the volume were right. They are not in the evidence one by one.
	Right int `json:"right,omitempty"`
}

func (r *runner) load(ctx context.Context) {
	r.Step(string(Load), func() {
		for _, rate := range r.LoadOptions.Rates {
			if !r.rate(ctx, fmt.Sprintf("%s%d", loadCheck, rate), rate, r.LoadOptions.Length) {
				return
			}
		}
		if len(r.LoadOptions.Rates) > 0 && r.LoadOptions.Volume > 0 && r.amount(ctx, volume, r.LoadOptions.Volume) {
			r.Runner.Progress(fmt.Sprintf("%s: nothing for %s, then", idle, r.LoadOptions.Idle), afterIdle)
			clusters.Pause(ctx, r.LoadOptions.Idle)
			r.amount(ctx, idle, afterIdle)
		}
	})
	if r.LoadOptions.Soak > 0 && !r.Ended() && ctx.Err() == nil {
		r.Step(string(Soak), func() { r.rate(ctx, soak, r.LoadOptions.SoakRate, r.LoadOptions.Soak) })
	}
}

func (r *runner) amount(ctx context.Context, check string, n int) bool {
	if check == volume {
		r.Runner.Progress(check, n)
	}
	stage, before, began := &Stage{Planned: n}, len(r.Answers), time.Now()
	if check == idle {
		stage.IdleMs = r.LoadOptions.Idle.Milliseconds()
	}
	ok := r.together(ctx, check, lanes, []*client{r.client}, times(r.Plan.repeatable(), n, apart))
	r.Answers = slices.DeleteFunc(r.Answers, func(a Answer) bool {
		right := a.Check == check && !a.Control && !r.Plan.isWrong(a)
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
func (r *runner) rate(ctx context.Context, check string, rate int, length time.Duration) bool {
	sends := pacer.Plan{Arrivals: pacer.Constant, Agents: 1, Rate: float64(rate), Length: length}.Stripe(0, 1)
	r.Runner.Progress(check, len(sends))
	vectors := r.Plan.Scenario
	answers := make([]Answer, len(sends))
	slots := make(chan struct{}, outstanding)
	stage := &Stage{Rate: rate, Planned: len(sends), LimitUs: r.LoadOptions.P99.Microseconds()}
	var all sync.WaitGroup
	r.client.ask(ctx, check, vectors[0]) // so that connecting is not measured
	began := time.Now()
	for i, s := range sends {
		if check == soak && i%max(len(sends)/memorySamples, 1) == 0 {
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
			late := time.Since(due)
			a := r.client.ask(ctx, check, apart(vectors, i))
			a.Micros, a.LateUs = time.Since(due).Microseconds(), max(late.Microseconds(), 0)
			answers[i] = a
		})
	}
	all.Wait()
	stage.Micros = time.Since(began).Microseconds()
	if check == soak {
		stage.Memory = append(stage.Memory, r.client.memory(ctx))
	}
	r.Answers = append(r.Answers, Answer{Check: check, Stage: stage})
	r.Answers = append(r.Answers, slices.DeleteFunc(answers, func(a Answer) bool { return a.Vector == "" })...)
	return ctx.Err() == nil && !slices.ContainsFunc(answers, func(a Answer) bool { return slices.Contains(unreachable, a.Fault) })
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
	// Soak is how many seconds the rate of level soak was kept up; P99s are by tenth, and Memory is what the webhook had.
	Soak   float64   `json:"soakSeconds,omitempty"`
	P99s   []float64 `json:"p99sMs,omitempty"`
	Memory []int64   `json:"memoryBytes,omitempty"`
}

func (r Rate) check() string {
	if r.Soak > 0 {
		return soak
	}
	return fmt.Sprintf("%s%d", loadCheck, r.Asked)
}

func (b *Plan) rates(answers []Answer) (out []Rate, planned, answered int) {
	at := map[string]int{}
	counts := map[string]*histogram.Histogram{}
	var soaked []time.Duration
	for _, a := range answers {
		if s := a.Stage; s != nil && (a.Check == soak || a.Check == fmt.Sprintf("%s%d", loadCheck, s.Rate)) {
			if _, twice := at[a.Check]; twice {
				continue
			}
			at[a.Check] = len(out)
			counts[a.Check] = &histogram.Histogram{}
			out = append(out, Rate{Asked: s.Rate, Dropped: s.Dropped, Limit: float64(s.LimitUs) / 1000, Achieved: float64(s.Micros)})
			if a.Check == soak {
				soaked := &out[len(out)-1]
				soaked.Soak, soaked.Memory = float64(s.Planned)/float64(max(s.Rate, 1)), s.Memory
			} else {
				planned += s.Planned
			}
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
		if a.Check == soak {
			soaked = append(soaked, time.Duration(a.Micros)*time.Microsecond)
		}
		if a.LateUs > lag.Microseconds() {
			out[i].Late++
		}
		if v, ok := b.vector(a.Vector); ok && len(judge(v, a)) > 0 {
			out[i].Wrong++
		}
	}
	for check, i := range at {
		h, r := counts[check], &out[i]
		ms := func(d time.Duration) float64 { return float64(d.Round(10*time.Microsecond).Microseconds()) / 1000 }
		if check == soak {
			r.P99s = tenths(soaked, ms)
		} else {
			answered += int(h.Count())
		}
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
		out["does-not-keep-up"] = fmt.Sprintf("%s: %d reviews were not sent, as %d had no answer", r.check(), r.Dropped, outstanding)
	}
	if r.P99 >= r.Limit {
		out["slow-under-load"] = fmt.Sprintf("%s: 99 %% of the answers came within %.2f ms, expected less than %.2f ms", r.check(), r.P99, r.Limit)
	}
	if n := len(r.P99s); n > 1 && r.P99s[n-1] > 2*r.P99s[0]+drifted {
		out["slows-down"] = fmt.Sprintf("soak: 99 %% of the answers came within %.2f ms in the first tenth, and %.2f ms in the last", r.P99s[0], r.P99s[n-1])
	}
	if n := len(r.Memory); n > 2 && r.Memory[1] > 0 && r.Memory[n-1] > 2*r.Memory[1] && r.Memory[n-1]-r.Memory[1] > grown {
		out["memory-grows"] = fmt.Sprintf("soak: the webhook had %d MiB after a tenth, and %d MiB at the end", r.Memory[1]>>20, r.Memory[n-1]>>20)
	}
	return out
}

// excused says that an answer did not come where the harness was late itself. A wrong answer has no excuse.
func excused(a Answer, rates []Rate) bool {
	return a.Fault != "" && slices.ContainsFunc(rates, func(r Rate) bool { return r.Inconclusive && a.Check == r.check() })
}

func isLoad(check string) bool { return check == soak || strings.HasPrefix(check, loadCheck) }

const (
	// memorySamples is how often a soak asks for the webhook's memory. It has grown if it is twice as much in the end
	// as after the first tenth, and by more than grown; an answer has become slow by more than drifted, in milliseconds.
	memorySamples = 10
	grown         = 32 << 20
	drifted       = 10
)

// tenths are the 99th percentiles of each tenth of what was measured, in order.
func tenths(all []time.Duration, ms func(time.Duration) float64) (out []float64) {
	for part := range slices.Chunk(all, max((len(all)+9)/10, 1)) {
		var h histogram.Histogram
		for _, d := range part {
			h.Record(d)
		}
		out = append(out, ms(h.Quantile(0.99)))
	}
	return out
}

var residentMemory = regexp.MustCompile(`(?m)^process_resident_memory_bytes ([0-9.e+]+)$`)

// memory is what the webhook says that it has; 0 if it has no /metrics that say so.
func (c *client) memory(ctx context.Context) int64 {
	u, err := url.Parse(c.url)
	if err != nil {
		return 0
	}
	u.Path, u.RawQuery = "/metrics", ""
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 8*maxAnswer))
	found := residentMemory.FindSubmatch(raw)
	if err != nil || resp.StatusCode != http.StatusOK || found == nil {
		return 0
	}
	bytes, _ := strconv.ParseFloat(string(found[1]), 64)
	return int64(bytes)
}
