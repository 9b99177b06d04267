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

// atOnceCheck is the beginning of the names of checks that ask questions at the same time.
const atOnceCheck = "at-once-"

// formation is a way to ask questions at the same time.
type formation struct {
	check string
	// connections is how many connections are open before the reviews are sent, each for streams of HTTP/2. If it is 0,
	// each review opens a connection of its own.
	connections int
	// size is how many reviews are sent together.
	size int
}

const (
	// streams is how many reviews are sent together, on one connection of HTTP/2 or on as many connections of HTTP/1.1.
	// Most servers accept that many at once.
	streams = 128
	// minOthersInFlight is how many other reviews have to be in flight when an answer comes. It has to be reached for half of the
	// answers.
	minOthersInFlight = 50
	// largestBad is the size in bytes up to which a request that is not a review is sent together with others.
	largestBad = 1 << 10
)

// formations returns all ways in which questions are asked at the same time.
func (b *Plan) formations() []formation {
	if b.repeatedFor() == Safe {
		return []formation{{atOnceCheck + "connections", 8, streams}}
	}
	return []formation{
		{atOnceCheck + "http1", 0, streams}, {atOnceCheck + "one-connection", 1, streams}, {atOnceCheck + "connections", 8, b.atOnce},
	}
}

// isAtOnce reports whether a check asks questions at the same time.
func isAtOnce(check string) bool { return strings.HasPrefix(check, atOnceCheck) }

// askedAtOnce returns what is asked in each formation: pairs of questions that differ in one attribute and in the
// decision, each beside the other; questions of one user; and requests that have to be refused.
func (b *Plan) askedAtOnce() map[string][]Question {
	random, all := policy.Random(b.Policy.Seed, "at once"), b.repeatable()
	paired := seq.Filter(b.all, func(v Question) bool { return v.Paired && !b.leavesOut(v) })
	bad := seq.Filter(b.all, func(v Question) bool { return v.canBeHeld() })
	out := map[string][]Question{}
	for i, f := range b.formations() {
		asked := slices.Clone(paired)
		if random.IntN(2) == 0 { // the second of each pair comes before the first
			slices.Reverse(asked)
		}
		asked = append(asked, pick(all, b.atOnce/2, keepTogether)...)
		if f.size > streams {
			asked = slices.Concat(pick(all, b.atOnce, spreadOut), asked)
		}
		for j := i; j < len(asked) && len(bad) > 0; j += streams {
			asked = slices.Insert(asked, j, bad[j%len(bad)])
		}
		out[f.check] = asked
	}
	return out
}

// canBeHeld reports whether a request that is not a review can be sent together with others.
func (v Question) canBeHeld() bool {
	return v.Form == literal && v.Method == "" && len(v.Body) > 1 && len(v.Body) <= largestBad
}

// askAtOnce asks the questions of a formation, as many at a time as it says. It reports whether it makes sense to go
// on.
func (r *runner) askAtOnce(ctx context.Context, f formation, questions []Question) bool {
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
	for some := range slices.Chunk(questions, f.size) {
		r.Runner.Progress(f.check, len(some))
		r.Answers = append(r.Answers, r.askWave(ctx, f.check, clients, conns, some)...)
		if r.Ended() || ctx.Err() != nil {
			return false
		}
	}
	return true
}

// connect returns the clients of a formation, with open connections.
func (r *runner) connect(ctx context.Context, f formation, conns *heldConns) (clients []*client, err error) {
	dial := conns.dial((&net.Dialer{Timeout: r.Webhook.Timeout}).DialContext)
	for range max(f.connections, 1) {
		c, err := r.Webhook.clientOver(f.connections == 0, dial)
		if err != nil {
			return nil, err
		}
		c.lag = r.client.lag
		if clients = append(clients, c); f.connections > 0 {
			body, err := r.Plan.all[0].body()
			if err != nil {
				return nil, err
			}
			c.send(ctx, http.MethodPost, body, nil)
		}
	}
	return clients, nil
}

// askWave asks questions at the same time, and returns the answers in the order of the questions.
func (r *runner) askWave(ctx context.Context, check string, clients []*client, conns *heldConns, questions []Question) []Answer {
	answers, w := make([]Answer, len(questions)), newWave()
	var all sync.WaitGroup
	for i, q := range questions {
		all.Go(func() { answers[i] = clients[i%len(clients)].askHeld(ctx, check, q, w.request()) })
	}
	w.gather(ctx, len(questions))
	w.release(ctx, conns)
	all.Wait()
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
	// Accompanied is how many answers came while at least 50 other reviews were in flight. Most is the largest number
	// of reviews in flight.
	Accompanied int
	Most        int64
}

// isEnough reports whether enough reviews were in flight to judge how the authorizer answers reviews at the same time.
func (c Concurrency) isEnough() bool { return 2*c.Accompanied >= c.Answers }

// String returns the figures in a sentence.
func (c Concurrency) String() string {
	return fmt.Sprintf("%d of %d answers came while %d other reviews were in flight", c.Accompanied, c.Answers, minOthersInFlight)
}

// measureConcurrency returns how many reviews were in flight in each check that asks questions at the same time.
func (b *Plan) measureConcurrency(answers []Answer) (out []Concurrency) {
	for _, f := range b.formations() {
		c := Concurrency{Check: f.check}
		for _, a := range answers {
			if a.Check != f.check {
				continue
			}
			if c.Answers++; a.InFlight > minOthersInFlight {
				c.Accompanied++
			}
			c.Most = max(c.Most, a.InFlight)
		}
		if c.Answers > 0 {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(x, y Concurrency) int { return cmp.Compare(x.Check, y.Check) })
	return out
}
