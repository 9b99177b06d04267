package certify

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// The checks. Plain asks every vector once, one after the other; the others
// repeat vectors in other circumstances, for level robust.
const (
	plain       = "plain"
	http1       = "http1"
	http2       = "http2"
	concurrency = "concurrency"
	drift       = "drift"

	// keptAlive reviews one after the other may take maxOpened connections.
	keptAlive = 50
	maxOpened = 5
	// concurrent reviews are under way at once, and drifting come after another.
	concurrent = 1000
	drifting   = 10_500
	lanes      = 8
	// hopeless is how many faults in a row end a run: a server that hangs would
	// otherwise take hours.
	hopeless = 5
)

// Options say what is certified.
type Options struct {
	Webhook *Webhook
	Book    *Book
	// Levels are those to try; none is all.
	Levels []Level
	// LoadOptions and Cluster ask for levels beyond those; without rates, and
	// without a cluster, they are not tried.
	LoadOptions LoadOptions
	Cluster     *ClusterOptions
	// Blame has the reference authorizer asked what was answered wrongly.
	Blame bool
	// Progress is told what is done next; nil is not.
	Progress func(step string, reviews int)
}

// Run is what was seen and what follows from it.
type Run struct {
	Answers  []Answer
	Findings []Finding
	Results  []Result
	Started  time.Time
	Took     map[string]time.Duration
}

// Certify asks and judges. Its error is about the harness; what is wrong with
// the authorizer is in the findings.
func Certify(ctx context.Context, o Options) (*Run, error) {
	if len(o.Levels) == 0 {
		o.Levels = Levels()
	}
	if o.Progress == nil {
		o.Progress = func(string, int) {}
	}
	c, err := o.Webhook.client(false)
	if err != nil {
		return nil, err
	}
	defer c.close()
	run := &runner{Options: o, client: c, out: &Run{Started: time.Now(), Took: map[string]time.Duration{}}}
	if err := run.beyond(ctx, run.all(ctx)); err != nil {
		return nil, err
	}
	if run.out.Findings, err = o.Book.judgeAll(run.out.Answers); err != nil {
		return nil, err
	}
	run.out.Results = o.Book.levels(run.out.Answers, run.out.Findings)
	return run.out, nil
}

// runner keeps what a run needs.
type runner struct {
	Options
	client *client
	out    *Run
	faults int // in a row
}

// all runs the checks of the levels in order, until there is no hope.
func (r *runner) all(ctx context.Context) bool {
	for _, level := range Levels() {
		if !slices.Contains(r.Levels, level) {
			continue
		}
		began := time.Now()
		vectors := slices.DeleteFunc(r.Book.All(), func(v Vector) bool { return v.Level != level })
		r.Progress(string(level), len(vectors))
		ok := r.sequence(ctx, r.client, plain, vectors)
		if ok && level == Robust {
			ok = r.robust(ctx)
		}
		r.out.Took[string(level)] = time.Since(began)
		if !ok {
			return false
		}
	}
	return true
}

// beyond runs the levels beyond those of direct mode, if there is hope, and finds
// out whose fault it is what was wrong.
func (r *runner) beyond(ctx context.Context, hope bool) error {
	if hope && len(r.LoadOptions.Rates) > 0 {
		r.load(ctx)
	}
	if hope && r.Cluster != nil {
		if err := r.inCluster(ctx); err != nil {
			return err
		}
	}
	if r.Blame && ctx.Err() == nil {
		findings, err := r.Book.judgeAll(r.out.Answers)
		if err != nil {
			return err
		}
		if err := r.control(ctx, findings); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// sequence asks one after the other.
func (r *runner) sequence(ctx context.Context, c *client, check string, vectors []Vector) bool {
	for _, v := range vectors {
		a := c.ask(ctx, check, v)
		r.out.Answers = append(r.out.Answers, a)
		if !r.hope(a) || ctx.Err() != nil {
			return false
		}
	}
	return true
}

// hope says whether it makes sense to go on.
func (r *runner) hope(a Answer) bool {
	if slices.Contains(wholly, a.Fault) {
		return false
	}
	if a.Fault == "does-not-answer-in-time" || a.Fault == "closes-the-connection" || a.Fault == "answer-too-large" {
		r.faults++
	} else {
		r.faults = 0
	}
	return r.faults < hopeless
}

// robust repeats the scenarios' reviews over kept connections, all at once, and
// often.
func (r *runner) robust(ctx context.Context) bool {
	vectors := r.Book.Scenario
	nth := func(i int) Vector { return vectors[i*7919%len(vectors)] } // far apart in the file
	for _, check := range []string{http1, http2} {
		c, err := r.Webhook.client(check == http1)
		if err != nil {
			return false
		}
		some := make([]Vector, keptAlive)
		for i := range some {
			some[i] = nth(i)
		}
		ok := r.sequence(ctx, c, check, some)
		r.out.Answers[len(r.out.Answers)-1].Opened = c.opened.Load()
		if c.close(); !ok {
			return false
		}
	}
	for range 2 {
		r.Progress(concurrency, concurrent)
		if !r.together(ctx, concurrency, concurrent, concurrent, nth) {
			return false
		}
	}
	r.Progress(drift, drifting)
	return r.together(ctx, drift, drifting, lanes, nth)
}

// together asks n vectors, so many at a time.
func (r *runner) together(ctx context.Context, check string, n, atOnce int, nth func(int) Vector) bool {
	answers := make([]Answer, n)
	var mu sync.Mutex
	hope := true
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(func() error {
			mu.Lock()
			ok := hope
			mu.Unlock()
			if !ok {
				return nil
			}
			answers[i] = r.client.ask(ctx, check, nth(i))
			mu.Lock()
			defer mu.Unlock()
			hope = r.hope(answers[i]) && hope
			return nil
		})
	}
	_ = g.Wait() // no lane fails
	r.out.Answers = append(r.out.Answers, slices.DeleteFunc(answers, func(a Answer) bool { return a.Vector == "" })...)
	return hope
}
