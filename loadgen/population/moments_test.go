package population

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// TestSlowAtTheEndOfCacheLife checks a slow request at the end of what is remembered, which may have found it or not.
// If it has, it stored nothing, and all requests right after it ask at the same time: three checks, where the slow
// one's would have been one for all.
func TestSlowAtTheEndOfCacheLife(t *testing.T) {
	asked := func(agent int32, from, to time.Duration) run.Request {
		return run.Request{Agent: agent, From: from, To: to}
	}
	v, err := profile.VariantNamed("associated-node")
	if err != nil {
		t.Fatal(err)
	}
	slow := []run.Request{asked(0, 0, 5*ms), asked(1, 9990*ms, 10_004*ms)}
	for _, c := range []struct {
		name      string
		then      []run.Request
		low, high int64
	}{
		{"nobody after it", nil, 1, 2},
		{"one after it asks, or the slow one did", []run.Request{asked(2, 10_004*ms, 10_012*ms)}, 1, 2},
		{"three after it ask at once", []run.Request{asked(2, 10_006*ms, 10_012*ms), asked(3, 10_006*ms, 10_012*ms), asked(4, 10_006*ms, 10_012*ms), asked(5, 10_100*ms, 10_105*ms)}, 2, 4},
		{"one by one", []run.Request{asked(2, 10_006*ms, 10_007*ms), asked(3, 10_008*ms, 10_009*ms), asked(4, 12*second, 13*second), asked(5, 19*second, 19_500*ms)}, 2, 2},
		{"beside the slow one", []run.Request{asked(2, 10_002*ms, 10_003*ms), asked(3, 11*second, 12*second)}, 2, 3},
		{"and again at the end of what may have been stored", []run.Request{asked(2, 15*second, 16*second), asked(3, 21*second, 21_100*ms), asked(4, 27*second, 27_100*ms)}, 3, 3},
	} {
		p := nodes(20, profile.Shared, "associated-node")
		got, err := history(t, p).Predict(v, time.Unix(0, 0), append(slices.Clone(slow), c.then...))
		if err != nil {
			t.Fatal(err)
		}
		if low, high := predictedRange(got, "associated-node", identity); low != c.low || high != c.high {
			t.Errorf("%s: %d to %d identity checks, expected %d to %d", c.name, low, high, c.low, c.high)
		}
	}
}

// TestRangeHoldsWhateverTheMoments checks that requests cost what is predicted, at whatever moments within them checks
// are looked for and stored.
func TestRangeHoldsWhateverTheMoments(t *testing.T) {
	v, err := profile.VariantNamed("associated-node")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(5284, 1))
	within := func(from, to time.Duration) time.Duration {
		return from + time.Duration(random.Int64N(int64(to-from)+1))
	}
	reached := 0
	for range 300 {
		var log []run.Request
		for agent := range 12 {
			from := within(0, 24*second)
			if agent%3 > 0 { // near the end of what another one stored
				from = log[random.IntN(len(log))].To + 10*second - within(0, 300*ms)
			}
			log = append(log, run.Request{Agent: int32(agent), From: from, To: from + within(ms, 400*ms)})
		}
		got, err := history(t, nodes(12, profile.Shared, "associated-node")).Predict(v, time.Unix(0, 0), log)
		if err != nil {
			t.Fatal(err)
		}
		low, high := predictedRange(got, "associated-node", identity)
		for range 200 {
			n := simulated(log, within)
			if n < low || n > high {
				t.Fatalf("%d identity checks, predicted %d to %d: %v", n, low, high, log)
			}
			if n == high && high > low {
				reached++
			}
		}
	}
	if reached == 0 {
		t.Error("the most that is predicted never came about")
	}
}

// simulated counts who asks if each request looks and stores at some moments of its own.
func simulated(log []run.Request, within func(from, to time.Duration) time.Duration) (asked int64) {
	type moment struct{ look, store time.Duration }
	var moments []moment
	for _, a := range log {
		look := within(a.From, a.To)
		moments = append(moments, moment{look, within(look, a.To)})
	}
	slices.SortFunc(moments, func(x, y moment) int { return cmp.Compare(x.look, y.look) })
	var stores []time.Duration
	for _, m := range moments {
		last := time.Duration(-1)
		for _, s := range stores {
			if s <= m.look {
				last = max(last, s)
			}
		}
		if last < 0 || m.look >= last+10*second {
			asked++
			stores = append(stores, m.store)
		}
	}
	return asked
}
