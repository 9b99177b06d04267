package certify

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// The checks. Plain asks every vector once, in order; the others repeat some in other circumstances, for level robust.
const (
	plain       = "plain"
	http1       = "http1"
	http2       = "http2"
	concurrency = "concurrency"
	drift       = "drift"
	first       = "first"

	// keptAlive reviews one after the other may take maxOpened connections.
	keptAlive = 50
	maxOpened = 5
	// concurrent reviews are under way at once, and drifting come after another.
	concurrent = 1000
	drifting   = 10_500
	lanes      = 8
	// maxFaults is how many faults in a row end a run: a server that hangs would otherwise take hours.
	maxFaults = 5
	// maxUseless is how many answers in a row that say neither yes nor no end one: the rest would be no better.
	maxUseless = 500
)

// Options say what is certified.
type Options struct {
	Webhook *Webhook
	Plan    *Plan
	Levels  []CertificationLevel // those to try; none is all
	// LoadOptions and Cluster ask for levels beyond those; without rates, and without a cluster, they are not tried.
	LoadOptions LoadOptions
	Cluster     *ClusterOptions
	// V1Only leaves out reviews of v1beta1, for who serves only v1.
	V1Only bool
	// Blame has the reference authorizer asked what was answered wrongly.
	Blame    bool
	Progress func(step string, reviews int) // told what is done next, if it is given
}

// Run is what was seen and what follows from it.
type Run[A any] struct {
	*Certification
	Answers []A
	Took    map[string]time.Duration // how long each step took
}

// Runner is what a run keeps while it asks.
type Runner[A any] struct {
	Answers  []A
	Progress func(step string, reviews int) // told what is done next

	took    map[string]time.Duration
	mu      sync.Mutex
	faults  int // in a row
	useless int // answers in a row that decide nothing
	ended   bool
}

// Perform has everything asked, and judges what was answered. Its error is about the harness; what is wrong with
// the authorizer is in the findings. Progress, if given, is told what is done next.
func Perform[A any](ctx context.Context, plan Judge[A], progress func(step string, reviews int), ask func(context.Context, *Runner[A]) error) (*Run[A], error) {
	r := newRunner[A](progress)
	began := time.Now()
	if err := ask(ctx, r); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := plan.Judge(r.Answers)
	if err != nil {
		return nil, err
	}
	c.Started, c.Ended = began.UTC().Truncate(time.Second), time.Now().UTC().Truncate(time.Second)
	return &Run[A]{Certification: c, Answers: r.Answers, Took: r.took}, nil
}

func newRunner[A any](progress func(string, int)) *Runner[A] {
	if progress == nil {
		progress = func(string, int) {}
	}
	return &Runner[A]{Progress: progress, took: map[string]time.Duration{}}
}

// Step carries out one step of the run, and measures it.
func (r *Runner[A]) Step(name string, do func()) {
	began := time.Now()
	do()
	r.took[name] += time.Since(began)
}

// Continue says whether it makes sense to go on after an answer, by what went wrong on its way, if anything did.
func (r *Runner[A]) Continue(fault string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.useless++; fault == "" {
		r.useless = 0
	}
	switch {
	case slices.Contains(unreachable, fault):
		r.ended = true
	case slices.Contains([]string{"does-not-answer-in-time", "closes-the-connection", "answer-too-large"}, fault):
		r.faults++
	default:
		r.faults = 0
	}
	r.ended = r.ended || r.faults >= maxFaults || r.useless >= maxUseless
	return !r.ended
}

// End has nothing more asked.
func (r *Runner[A]) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// Ended says whether Continue has said no, or End was called.
func (r *Runner[A]) Ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// DirectKind is the kind of certifications of authorizers by SubjectAccessReview.
const DirectKind = "AuthorizerCertification"

// Direct is that kind, with the questions that scenarios lead to.
func Direct(set *scenarios.Set) Kind[Answer] {
	return Kind[Answer]{DirectKind, "certification", func(seed int64) (Judge[Answer], error) { return NewPlan(set, seed) }}
}

// Certify asks and judges. Its error is about the harness; what is wrong with the authorizer is in the findings.
func Certify(ctx context.Context, o Options) (*Run[Answer], error) {
	if len(o.Levels) == 0 {
		o.Levels = Levels()
	}
	c, err := o.Webhook.client(false)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return Perform(ctx, o.Plan, o.Progress, func(ctx context.Context, r *Runner[Answer]) error {
		one := &runner{r, o, c}
		if err := one.preflight(ctx); err != nil {
			return err
		}
		return one.everything(ctx)
	})
}

// NotLoadedError says that nothing is allowed of what the policy grants: it is about the setup, not the authorizer.
type NotLoadedError struct {
	Asked int
	Seed  int64
}

func (e *NotLoadedError) Error() string {
	return fmt.Sprintf("0 of %d grants are allowed: is the policy of seed %d loaded? (authzconf certify policy --seed %d prints it, -o says in which form)", e.Asked, e.Seed, e.Seed)
}

const preflighted = 100

// preflight asks what is first, and is content with one allowed grant, or an answer that says something else than no.
func (r *runner) preflight(ctx context.Context) error {
	asked, loaded := 0, false
	for _, v := range r.Plan.first() {
		a := r.client.ask(ctx, first, v)
		if slices.Contains(r.Levels, Core) {
			r.Answers = append(r.Answers, a)
		}
		if a.Fault != "" {
			return nil
		}
		if v.Expect == scenarios.Allow {
			asked++
			loaded = loaded || !a.Status || a.Allowed || a.Kind != "" || a.APIVersion != ""
		}
	}
	if loaded {
		return nil
	}
	return &NotLoadedError{asked, r.Plan.Policy.Seed}
}

// first are the questions that are asked before all others: one about what is not granted, for who allows everything
// until the policy is there, and grants, for who allows nothing until then.
func (b *Plan) first() (out []Question) {
	for i := 0; i < len(b.Scenario) && len(out) <= preflighted; i++ {
		if v := apart(b.Scenario, i); (v.Expect == scenarios.Allow) == (len(out) > 0) {
			out = append(out, v)
		}
	}
	return out
}

type runner struct {
	*Runner[Answer]
	Options
	client *client
}

// direct asks what the levels of direct mode need, in order, as long as it makes sense.
func (r *runner) direct(ctx context.Context) {
	for _, level := range Levels() {
		if !slices.Contains(r.Levels, level) {
			continue
		}
		questions := seq.Filter(r.Plan.All(), func(v Question) bool { return v.Level == level && (!r.V1Only || v.Form != v1beta1) })
		r.Runner.Progress(string(level), len(questions))
		var ok bool
		r.Step(string(level), func() {
			if ok = r.sequence(ctx, r.client, plain, questions); ok && level == Robust {
				ok = r.robust(ctx)
			}
		})
		if !ok {
			return
		}
	}
}

// everything asks for all levels that were asked for, and finds out whose fault it is what was wrong.
func (r *runner) everything(ctx context.Context) error {
	if r.V1Only {
		r.Answers = append(r.Answers, Answer{Check: versionsCheck, Vector: "v1"})
	}
	r.direct(ctx)
	if !r.Ended() && ctx.Err() == nil {
		if len(r.LoadOptions.Rates) > 0 || r.LoadOptions.Soak > 0 {
			r.load(ctx)
		}
		if r.Cluster != nil {
			if err := r.inCluster(ctx); err != nil {
				return err
			}
		}
	}
	if r.Blame && ctx.Err() == nil {
		findings, err := r.Plan.judgeAll(r.Answers)
		if err != nil {
			return err
		}
		return r.control(ctx, findings)
	}
	return nil
}

func (r *runner) sequence(ctx context.Context, c *client, check string, vectors []Question) bool {
	for _, v := range vectors {
		a := c.ask(ctx, check, v)
		r.Answers = append(r.Answers, a)
		if !r.Continue(a.useless()) || ctx.Err() != nil {
			return false
		}
	}
	return true
}

// repeatable are the questions that can be asked again at any time.
func (b *Plan) repeatable() (out []*Question) {
	for i := range b.all {
		if v := &b.all[i]; v.Form == "" && v.Expect != "" && v.Level != Robust {
			out = append(out, v)
		}
	}
	return out
}

// stride is a prime: going on by it comes to all of a list whose length is no multiple of it.
const stride = 7919

// apart is the i-th question of a list in an order in which neighbours are far apart.
func apart[Q any](all []Q, i int) Q { return all[i*stride%len(all)] }

func times(all []*Question, n int, nth func(all []*Question, i int) *Question) []Question {
	out := make([]Question, n)
	for i := range out {
		out[i] = *nth(all, i)
	}
	return out
}

// askedAgain are the questions that are asked first, and again for the level Robust, by check, in their order.
func (b *Plan) askedAgain() map[string][]Question {
	vectors := b.repeatable()
	// Neighbours, of one user as a rule, and each twice: somebody else's answer, or that to another question of somebody, is
	// given to questions that are under way together.
	neighbour := func(all []*Question, i int) *Question { return all[(i/40*stride+i%40/2)%len(all)] }
	return map[string][]Question{
		first: b.first(), http1: times(vectors, keptAlive, apart), http2: times(vectors, keptAlive, apart), drift: times(vectors, b.after, apart),
		concurrency: slices.Concat(times(vectors, b.atOnce, apart), times(vectors, b.atOnce, neighbour)),
	}
}

// robust repeats the scenarios' reviews over kept connections, all at once, and often.
func (r *runner) robust(ctx context.Context) bool {
	repeated := r.Plan.askedAgain()
	for _, check := range []string{http1, http2} {
		c, err := r.Webhook.client(check == http1)
		if err != nil {
			return false
		}
		ok := r.sequence(ctx, c, check, repeated[check])
		r.Answers[len(r.Answers)-1].Opened = c.opened.Load()
		if c.close(); !ok {
			return false
		}
	}
	for some := range slices.Chunk(repeated[concurrency], r.Plan.atOnce) {
		r.Runner.Progress(concurrency, r.Plan.atOnce)
		if !r.together(ctx, concurrency, r.Plan.atOnce, []*client{r.client}, some) {
			return false
		}
	}
	r.Runner.Progress(drift, r.Plan.after)
	clients := make([]*client, lanes) // on connections of their own: another replica may answer
	for i := range clients {
		c, err := r.Webhook.client(false)
		if err != nil {
			return false
		}
		defer c.close()
		clients[i] = c
	}
	return r.together(ctx, drift, lanes, clients, repeated[drift])
}

// together asks questions, so many at a time, of one client after the other.
func (r *runner) together(ctx context.Context, check string, atOnce int, clients []*client, questions []Question) bool {
	answers := make([]Answer, len(questions))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, q := range questions {
		g.Go(func() error {
			if !r.Ended() {
				answers[i] = clients[i%len(clients)].ask(ctx, check, q)
				r.Continue(answers[i].useless())
			}
			return nil
		})
	}
	_ = g.Wait() // no lane fails
	r.Answers = append(r.Answers, slices.DeleteFunc(answers, func(a Answer) bool { return a.Vector == "" })...)
	return !r.Ended()
}

// ServeReference runs the reference authorizer with the policy of a seed, or with that in a file, as certify policy -o
// json prints it, if one is named. It follows the file; one that is being written is read at the next review. It
// writes the kubeconfig for it.
func ServeReference(plan *Plan, policyFile, kubeconfig string) (stop func() error, err error) {
	decide := plan.decider()
	if policyFile != "" {
		file, first, err := reference.Follow(policyFile, func(path string, raw []byte) (*policy.Policy, error) {
			p, err := policy.Parse(raw)
			if err != nil {
				err = fmt.Errorf("%s: %w", path, err)
			}
			return p, err
		})
		if err != nil {
			return nil, err
		}
		holder := policy.NewHolder(first)
		decide = func(s spec) scenarios.Decision {
			if p, changed, _ := file.Changed(); changed {
				holder.Store(p)
			}
			return holder.Decide(s)
		}
	}
	return reference.ServeFor(reference.Handler(decide), kubeconfig, (*reference.Server).Kubeconfig)
}
