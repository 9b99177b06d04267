package certify

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// These are the checks. plainCheck asks every question once, in order. The others repeat some in other circumstances,
// for level robust.
const (
	plainCheck   = "plain"
	http1Check   = "http1"
	http2Check   = "http2"
	driftCheck   = "drift"
	firstCheck   = "first"
	silenceCheck = "silence"
	// retryCheck asks once more what was answered wrongly for a while.
	retryCheck = "afterwards"

	// maxConnections is how many connections the keepAliveReviews, which are sent one after the other, may need.
	keepAliveReviews = 50
	maxConnections   = 5
	// concurrentReviews is how many reviews are sent at once, driftReviews how many are sent one after the other, and
	// parallelAskers how many do so at the same time.
	concurrentReviews = 1000
	driftReviews      = 10_500
	parallelAskers    = 8
	// maxUnread is how many answers may wait to be read while further questions are asked.
	maxUnread = 32
)

// Options say what is certified, and how.
type Options struct {
	Webhook *Webhook
	Plan    *Plan
	// Levels are the levels of direct mode that are tried. If it is empty, all are.
	Levels []CertificationLevel
	// LoadOptions and Cluster ask for levels beyond those of direct mode. Without rates, or without a cluster, these
	// levels are not tried.
	LoadOptions LoadOptions
	Cluster     *ClusterOptions
	// V1Only leaves out reviews of v1beta1. It is for an authorizer that serves only v1.
	V1Only bool
	// Blame is set if the reference authorizer is to be asked what was answered wrongly.
	Blame bool
	// Progress, if it is given, is called before each step.
	Progress func(step string, reviews int)

	// isSelected reports whether questions of a part of a level are asked. If it is nil, those of all parts are.
	isSelected func(id string) bool
}

// isTried reports whether questions of a part of a level are asked.
func (o Options) isTried(p part) bool { return o.isSelected == nil || o.isSelected(p.id()) }

// Certify asks questions and judges the answers. An error is about the harness; what is wrong with the authorizer is in
// the findings.
func Certify(ctx context.Context, o Options) (*Run[Answer], error) {
	if o.V1Only {
		o.Plan = o.Plan.withoutV1beta1()
	}
	return Perform(ctx, o.Plan.Judge, o.Progress, func(ctx context.Context, r *Runner[Answer]) error { return askAll(ctx, r, o) })
}

// runner asks for a certification by SubjectAccessReview.
type runner struct {
	*Runner[Answer]
	Options
	client *client
	// suspects are questions that were answered wrongly for a while, and are asked again.
	suspects []Question
}

// newClient returns a client with connections of its own.
func (r *runner) newClient(http1 bool) (*client, error) {
	c, err := r.Webhook.newClient(http1)
	if err == nil {
		c.lag = r.client.lag
	}
	return c, err
}

// askAll asks questions for all levels that are to be tried, and then finds out whose fault the wrong answers are.
func askAll(ctx context.Context, all *Runner[Answer], o Options) error {
	if len(o.Levels) == 0 {
		o.Levels = o.Plan.levels
	}
	c, err := o.Webhook.newClient(false)
	if err != nil {
		return err
	}
	defer c.close()
	if c.lag, err = newLagMeter(ctx); err != nil {
		return err
	}
	defer c.lag.close()
	r := &runner{Runner: all, Options: o, client: c}
	r.Step(string(Core)+"-first", func() { err = r.preflight(ctx) })
	if err != nil {
		return err
	}
	r.askDirect(ctx)
	if !r.HasEnded() && ctx.Err() == nil {
		r.Step(string(Load), func() { r.askLoad(ctx) })
		if r.Cluster != nil {
			if err := r.inCluster(ctx); err != nil {
				return err
			}
		}
	}
	if !r.Blame || ctx.Err() != nil {
		return nil
	}
	return r.findBlame(ctx)
}

// NotLoadedError reports that the authorizer allows nothing of what the policy grants. It is about the setup, not about
// the authorizer.
type NotLoadedError struct {
	Grants int
	Seed   int64
}

func (e *NotLoadedError) Error() string {
	return fmt.Sprintf(
		"0 of %d grants are allowed: is the policy of seed %d loaded? (authzconf certify policy --seed %d prints it, -o says in which form)",
		e.Grants,
		e.Seed,
		e.Seed,
	)
}

const preflightQuestions = 100

// preflight asks the first questions. It is satisfied by one allowed grant, or by an answer that is more than a no. A
// plan without grants has no first questions.
func (r *runner) preflight(ctx context.Context) error {
	questions := r.Plan.firstQuestions()
	grants, loaded := 0, len(questions) == 0
	for _, v := range questions {
		a := r.client.ask(ctx, firstCheck, v)
		if slices.Contains(r.Levels, Core) {
			r.Answers = append(r.Answers, a)
		}
		if a.Fault != "" {
			return nil
		}
		if v.Expect == scenarios.Allow {
			grants++
			loaded = loaded || a.isMoreThanNo()
		}
	}
	if loaded || ctx.Err() != nil {
		return nil //nolint:nilerr // Execute records the interruption, and nobody knows whether the policy is loaded
	}
	return &NotLoadedError{grants, r.Plan.Policy.Seed}
}

// isMoreThanNo reports whether an answer differs from what an authorizer without a policy gives.
func (a Answer) isMoreThanNo() bool {
	otherReview := a.Kind != "" || a.APIVersion != ""
	return a.Allowed || !a.HasStatus || otherReview
}

// askDirect asks what the levels of direct mode need, in order, until it makes no sense to go on.
func (r *runner) askDirect(ctx context.Context) {
	for _, level := range r.Plan.levels {
		if !slices.Contains(r.Levels, level) {
			continue
		}
		questions := seq.Filter(r.Plan.All(), func(v Question) bool {
			return v.Level == level && !r.Plan.leavesOut(v) && r.isTried(partOfQuestion(v))
		})
		r.Runner.Progress(string(level), len(questions))
		goOn, before := true, len(r.Answers)
		r.Step(string(level), func() {
			goOn = r.askInOrder(ctx, r.client, plainCheck, r.interleave(questions))
			if goOn {
				goOn = r.askAgain(ctx, level)
			}
			r.suspects = append(r.suspects, r.Plan.suspects(r.Answers[before:])...)
		})
		if !goOn {
			return
		}
	}
	r.Step(retryCheck, func() { r.askInOrder(ctx, r.client, retryCheck, r.suspects) })
}

// askInOrder asks one question after the other, and reads each answer while the next question is under way. It reports
// whether it makes sense to go on. Answers after the one that ended the run are not kept.
func (r *runner) askInOrder(ctx context.Context, c *client, check string, questions []Question) bool {
	unread := make(chan unreadAnswer, maxUnread)
	var reading sync.WaitGroup
	go func() {
		for u := range unread {
			if !r.HasEnded() {
				a := u.read()
				r.Answers = append(r.Answers, a)
				r.Continue(a.undecidedReason())
			}
			reading.Done()
		}
	}()
	for _, v := range questions {
		u := c.send(ctx, check, v, nil)
		if ctx.Err() != nil {
			break // the answer would show our interruption
		}
		reading.Add(1)
		unread <- u
		if u.answer.Fault != "" {
			reading.Wait() // the fault may end the run, and the next question could take as long as this one
		}
		if r.HasEnded() {
			break
		}
	}
	close(unread)
	reading.Wait()
	return ctx.Err() == nil && !r.HasEnded()
}

// askAgain repeats questions in other circumstances, for the levels that are about these. It reports whether it makes
// sense to go on.
func (r *runner) askAgain(ctx context.Context, level CertificationLevel) bool {
	switch level {
	case Robust:
		return r.askRobust(ctx)
	case Safe:
		return r.runConcurrentChecks(ctx, r.Plan.repeatedQuestions())
	}
	return true
}

// askRobust repeats the scenarios' reviews over connections that stay open, all at once, after silence, and often. It
// reports whether it makes sense to go on.
func (r *runner) askRobust(ctx context.Context) bool {
	repetitions := r.Plan.repeatedQuestions()
	for _, check := range []string{http1Check, http2Check} {
		if r.isTried(part{Robust, check}) && !r.askOverHTTP(ctx, check, repetitions[check]) {
			return false
		}
	}
	if !r.runConcurrentChecks(ctx, repetitions) {
		return false
	}
	if r.isTried(part{Robust, silenceCheck}) && !r.askInSilence(ctx, repetitions[silenceCheck]) {
		return false
	}
	return !r.isTried(part{Robust, driftCheck}) || r.askDrift(ctx, repetitions[driftCheck])
}

// runConcurrentChecks carries out all checks that ask questions at the same time. It reports whether it makes sense to
// go on.
func (r *runner) runConcurrentChecks(ctx context.Context, repetitions map[string][]Question) bool {
	for _, f := range r.Plan.concurrentChecks() {
		if r.isTried(part{r.Plan.repeatLevel(), f.check}) && !r.runConcurrentCheck(ctx, f, repetitions[f.check]) {
			return false
		}
	}
	return true
}

// askOverHTTP asks questions over one version of HTTP, and counts the connections that this takes. It reports whether it
// makes sense to go on.
func (r *runner) askOverHTTP(ctx context.Context, check string, questions []Question) bool {
	c, err := r.newClient(check == http1Check)
	if err != nil {
		return false
	}
	defer c.close()
	goOn := r.askInOrder(ctx, c, check, questions)
	if n := len(r.Answers); n > 0 {
		r.Answers[n-1].Connections = c.connections.Load()
	}
	return goOn
}

// askDrift asks more questions than were asked before, on connections of its own, because another replica may answer
// them. It reports whether it makes sense to go on.
func (r *runner) askDrift(ctx context.Context, questions []Question) bool {
	r.Runner.Progress(driftCheck, r.Plan.driftCount)
	clients := make([]*client, parallelAskers)
	for i := range clients {
		c, err := r.newClient(false)
		if err != nil {
			return false
		}
		defer c.close()
		clients[i] = c
	}
	r.Answers = append(r.Answers, r.askInParallel(ctx, driftCheck, parallelAskers, clients, questions)...)
	return !r.HasEnded()
}

// askInParallel asks questions, a given number at a time, and spreads them over the clients in turn. It returns the
// answers in the order of the questions.
func (r *runner) askInParallel(ctx context.Context, check string, atOnce int, clients []*client, questions []Question) []Answer {
	answers := make([]Answer, len(questions))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, q := range questions {
		g.Go(func() error {
			if r.HasEnded() || ctx.Err() != nil {
				return nil //nolint:nilerr // the question has no answer: the runner records why it ended, and Execute an interruption
			}
			a := clients[i%len(clients)].ask(ctx, check, q)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the answer shows only our interruption, which Execute records
			}
			answers[i] = a
			r.Continue(a.undecidedReason())
			return nil
		})
	}
	_ = g.Wait() // the functions return no error
	return slices.DeleteFunc(answers, func(a Answer) bool { return a.Vector == "" })
}

// controlStep is the name of the step in which the reference is asked.
const controlStep = "reference"

// findBlame asks the reference what was answered wrongly.
func (r *runner) findBlame(ctx context.Context) error {
	answers, err := r.AllAnswers()
	if err != nil {
		return err
	}
	answers = r.Plan.readBodiesAgain(answers)
	findings, err := r.Plan.examine(answers)
	if err != nil {
		return err
	}
	r.Step(controlStep, func() { err = r.askControl(ctx, answers, findings.Sorted(nil)) })
	return err
}
