package certify

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/internal/seq"
)

// concurrentPrefix is the beginning of the names of checks that ask questions at the same time.
const concurrentPrefix = "at-once-"

// concurrentCheck is a way to ask questions at the same time.
type concurrentCheck struct {
	check string
	// connections is how many connections are open before the reviews are sent, each for streams of HTTP/2. If it is 0,
	// each review opens a connection of its own.
	connections int
	// size is how many reviews are sent together.
	size int
}

const (
	// streamCount is how many reviews are sent together, on one connection of HTTP/2 or on as many connections of
	// HTTP/1.1. Most servers accept that many at once.
	streamCount = 128
	// minOthersInFlight is how many other reviews have to be in flight when an answer comes. It has to be reached for
	// half of the answers.
	minOthersInFlight = 50
	// maxBadRequest is the size in bytes up to which a request that is not a review is sent together with others.
	maxBadRequest = 1 << 10
)

// concurrentChecks returns all ways in which questions are asked at the same time.
func (b *Plan) concurrentChecks() []concurrentCheck {
	if b.repeatLevel() == Safe {
		return []concurrentCheck{{concurrentPrefix + "connections", 8, streamCount}}
	}
	return []concurrentCheck{
		{concurrentPrefix + "http1", 0, streamCount},
		{concurrentPrefix + "one-connection", 1, streamCount},
		{concurrentPrefix + "connections", 8, b.concurrentCount},
	}
}

// isConcurrent reports whether a check asks questions at the same time.
func isConcurrent(check string) bool { return strings.HasPrefix(check, concurrentPrefix) }

// concurrentQuestions returns what each concurrent check asks: pairs of questions that differ in one attribute and in
// the decision, each beside the other; questions of one user; and requests that have to be refused.
func (b *Plan) concurrentQuestions() map[string][]Question {
	random, all := policy.Random(b.Policy.Seed, "at once"), b.repeatableQuestions()
	pairs := seq.Filter(b.all, func(v Question) bool { return v.Paired && !b.leavesOut(v) })
	badRequests := seq.Filter(b.all, func(v Question) bool { return v.canJoinWave() })
	out := map[string][]Question{}
	for i, f := range b.concurrentChecks() {
		questions := slices.Clone(pairs)
		if random.IntN(2) == 0 { // the second of each pair comes before the first
			slices.Reverse(questions)
		}
		questions = append(questions, pickQuestions(all, b.concurrentCount/2, neighbouringQuestion)...)
		if f.size > streamCount {
			questions = slices.Concat(pickQuestions(all, b.concurrentCount, scatteredQuestion), questions)
		}
		for j := i; j < len(questions) && len(badRequests) > 0; j += streamCount {
			questions = slices.Insert(questions, j, badRequests[j%len(badRequests)])
		}
		out[f.check] = questions
	}
	return out
}

// canJoinWave reports whether a request that is not a review can be sent together with others.
func (v Question) canJoinWave() bool {
	return v.Form == literal && v.Method == "" && len(v.Body) > 1 && len(v.Body) <= maxBadRequest
}

// runConcurrentCheck asks the questions of a check, as many at a time as the check says. It reports whether it makes
// sense to go on.
func (r *runner) runConcurrentCheck(ctx context.Context, f concurrentCheck, questions []Question) bool {
	conns := &heldConns{}
	clients, err := r.connect(ctx, f, conns)
	if err != nil {
		return false
	}
	defer func() {
		for _, c := range clients {
			c.close()
		}
	}()
	for batch := range slices.Chunk(questions, f.size) {
		r.Runner.Progress(f.check, len(batch))
		r.Answers = append(r.Answers, r.askWave(ctx, f.check, clients, conns, batch)...)
		if r.HasEnded() || ctx.Err() != nil {
			return false
		}
	}
	return true
}

// connect returns the clients of a concurrent check, with open connections.
func (r *runner) connect(ctx context.Context, f concurrentCheck, conns *heldConns) (clients []*client, err error) {
	dial := conns.wrapDial((&net.Dialer{Timeout: r.Webhook.Timeout}).DialContext)
	for range max(f.connections, 1) {
		c, err := r.Webhook.newClientOver(f.connections == 0, dial)
		if err != nil {
			return nil, err
		}
		c.lag = r.client.lag
		if clients = append(clients, c); f.connections > 0 {
			body, err := r.Plan.all[0].body()
			if err != nil {
				return nil, err
			}
			c.post(ctx, http.MethodPost, body, nil)
		}
	}
	return clients, nil
}

// askWave asks questions at the same time, and returns the answers in the order of the questions.
func (r *runner) askWave(ctx context.Context, check string, clients []*client, conns *heldConns, questions []Question) []Answer {
	answers, w := make([]Answer, len(questions)), newWave(r.client.lag)
	var pending sync.WaitGroup
	for i, q := range questions {
		pending.Go(func() { answers[i] = clients[i%len(clients)].askHeld(ctx, check, q, w.newRequest()) })
	}
	w.gather(ctx, len(questions))
	w.release(ctx, conns)
	pending.Wait()
	if ctx.Err() != nil {
		return nil // the answers would show our interruption
	}
	for _, a := range answers {
		r.Continue(a.undecidedReason())
	}
	return answers
}

// Concurrency is how many reviews were in flight when answers came.
type Concurrency struct {
	// Check is the check for which the reviews were sent, and Answers is how many answers came.
	Check   string
	Answers int
	// ConcurrentAnswers is how many answers came while at least 50 other reviews were in flight. MaxInFlight is the
	// largest number of reviews in flight.
	ConcurrentAnswers int
	MaxInFlight       int64
}

// isEnough reports whether enough reviews were in flight to judge how the authorizer answers reviews at the same time.
func (c Concurrency) isEnough() bool { return 2*c.ConcurrentAnswers >= c.Answers }

// String returns the figures in a sentence.
func (c Concurrency) String() string {
	return fmt.Sprintf("%d of %d answers came while %d other reviews were in flight", c.ConcurrentAnswers, c.Answers, minOthersInFlight)
}

// measureConcurrency returns how many reviews were in flight in each check that asks questions at the same time.
func (b *Plan) measureConcurrency(answers []Answer) (out []Concurrency) {
	for _, f := range b.concurrentChecks() {
		c := Concurrency{Check: f.check}
		for _, a := range answers {
			if a.Check != f.check {
				continue
			}
			if c.Answers++; a.InFlight > minOthersInFlight {
				c.ConcurrentAnswers++
			}
			c.MaxInFlight = max(c.MaxInFlight, a.InFlight)
		}
		if c.Answers > 0 {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(x, y Concurrency) int { return cmp.Compare(x.Check, y.Check) })
	return out
}
