package agent

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/authzconf/authzconf/reports/load/histogram"
	"github.com/authzconf/authzconf/reports/load/run"
)

// tally counts what becomes of the requests of a block.
type tally struct {
	start     time.Time
	tolerance time.Duration

	mu    sync.Mutex
	block run.Block
	kinds []histogram.Histogram
	errs  int64 // answers that were not expected
	done  int64
}

// second is the entry of the timeline for a moment. The caller holds the lock.
func (t *tally) second(at time.Time) *run.Second {
	i := max(0, int(at.Sub(t.start)/time.Second))
	for len(t.block.Timeline) <= i {
		t.block.Timeline = append(t.block.Timeline, run.Second{})
	}
	return &t.block.Timeline[i]
}

func (t *tally) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.block.Dropped++
}

// sent counts a request as it leaves.
func (t *tally) sent(intended, actual time.Time) {
	lag := actual.Sub(intended)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.block.Sent++
	t.block.Lag.Record(lag)
	if lag > t.tolerance {
		t.block.Late++
	}
	t.second(actual).Sent++
}

// retry counts an answer after which the agent asks again.
func (t *tally) retry(status int, err error) {
	name := nameOf(status, err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.block.Retried++
	if t.block.Again == nil {
		t.block.Again = map[string]int64{}
	}
	t.block.Again[name]++
	t.answer(name)
}

// nameOf is what an answer is counted as: a status, or a class of error.
func nameOf(status int, err error) string {
	if err != nil {
		return classify(err)
	}
	return strconv.Itoa(status)
}

// mostLogged is how many requests of a block are logged: with more, nothing is predicted.
const mostLogged = 2_000_000

// log notes a request that was sent, and its answer if that is not as expected.
func (t *tally) log(next task, from, to time.Time, expect int, got reply, err error) {
	asked := run.Asked{Agent: next.Agent, Kind: next.Kind, Turn: next.turn, From: from.Sub(t.start), To: to.Sub(t.start)}
	if err != nil {
		asked.Answer = classify(err)
	} else if got.status != expect {
		asked.Answer = got.full
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.block.Log) < mostLogged {
		t.block.Log = append(t.block.Log, asked)
	}
}

// finish counts the end of a request: a status, or an error.
func (t *tally) finish(kind int32, expect int, intended, actual, end time.Time, status int, err error) {
	name := nameOf(status, err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done++
	t.answer(name)
	second := t.second(end)
	second.Done++
	if name == other {
		t.block.NoteOdd(err.Error())
	}
	if err != nil || status != expect {
		t.errs++
		second.Errors++
		if t.block.Wrong == nil {
			t.block.Wrong = map[string]int64{}
		}
		t.block.Wrong[fmt.Sprintf("%s: expected %d", name, expect)]++
	}
	t.block.Latency.Record(end.Sub(intended))
	t.block.Service.Record(end.Sub(actual))
	t.kinds[kind].Record(end.Sub(intended))
}

func (t *tally) answer(name string) {
	if t.block.Answers == nil {
		t.block.Answers = map[string]int64{}
	}
	t.block.Answers[name]++
}

// Live is how a block is going.
type Live struct {
	Sent, Done, Errors int64
	// Latency is that of all requests so far.
	Latency histogram.Histogram
}

func (t *tally) live() Live {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := Live{Sent: t.block.Sent, Done: t.done, Errors: t.errs}
	l.Latency.Merge(&t.block.Latency)
	return l
}
