package certify

import (
	"slices"
	"testing"
	"time"

	"github.com/authzconf/authzconf/certify/reference"
)

// TestTimeOfAStarvedMachine judges answers that came late, with the time that the harness itself needed at the same
// moment.
func TestTimeOfAStarvedMachine(t *testing.T) {
	b := plan(t, smallSeed)
	v := b.Scenario[0]
	for name, c := range map[string]struct {
		millis, harness int64
		fault           string
		wantFinding     string
		wantUnclear     bool
	}{
		"in time":                          {millis: 100},
		"in time on a starved machine":     {millis: 2900, harness: 2000},
		"slow":                             {millis: 3500, wantFinding: reasonSlow},
		"slow by the harness's own need":   {millis: 3200, harness: 400},
		"slower than that":                 {millis: 4000, harness: 400, wantFinding: reasonSlow},
		"slow on a starved machine":        {millis: 4000, harness: 900, wantUnclear: true},
		"no answer":                        {millis: 10_000, fault: faultNoAnswerInTime, wantFinding: faultNoAnswerInTime},
		"no answer on a starved machine":   {millis: 10_000, harness: 900, fault: faultNoAnswerInTime, wantUnclear: true},
		"broken off on a starved machine":  {millis: 10, harness: 900, fault: "closes-the-connection", wantFinding: "closes-the-connection"},
		"broken off late, on such machine": {millis: 4000, harness: 900, fault: "closes-the-connection", wantFinding: "closes-the-connection", wantUnclear: true},
	} {
		a := answered(v)
		a.Millis, a.HarnessMs = c.millis, c.harness
		if c.fault != "" {
			a = Answer{Check: plainCheck, Vector: v.ID, Millis: c.millis, HarnessMs: c.harness, Fault: c.fault}
		}
		judged, err := b.Judge([]Answer{a})
		if err != nil {
			t.Fatal(err)
		}
		found := ""
		if len(judged.Findings) > 0 {
			found = judged.Findings[0].Reason
		}
		isUnclear := judged.Results[0].Inconclusive != "" && judged.Cases[partOf(plainCheck, v).id()].Inconclusive != ""
		if found != c.wantFinding || isUnclear != c.wantUnclear {
			t.Errorf("%s: found %q, unclear %t: %+v", name, found, isUnclear, judged.Results[0])
		}
	}
}

// TestLagMeter measures a machine on which nothing is late, and one on which much is late.
func TestLagMeter(t *testing.T) {
	now := time.Now()
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	m := &lagMeter{began: now, due: at(9000), samples: []lagSample{{at(100), at(700)}, {at(2000), at(2050)}}}
	for _, c := range []struct {
		from, until int
		want        int64
	}{
		{0, 50, 0}, {0, 650, 600}, {300, 650, 350}, {750, 1900, 0}, {1900, 2100, 50}, {8990, 9005, 0}, {8000, 9800, 800},
	} {
		if _, got := m.measure(at(c.from), at(c.until)); got != c.want {
			t.Errorf("from %d to %d: %d ms, expected %d", c.from, c.until, got, c.want)
		}
	}
	if at, lag := (*lagMeter)(nil).measure(now, now.Add(time.Hour)); at != 0 || lag != 0 {
		t.Errorf("without a meter: at %d, %d ms", at, lag)
	}
}

// TestPatience checks that a busy machine gets more time, up to a limit, and only while it is busy.
func TestPatience(t *testing.T) {
	now := time.Now()
	sample := func(ago, took time.Duration) lagSample { return lagSample{now.Add(-ago - took), now.Add(-ago)} }
	for name, c := range map[string]struct {
		due     time.Time
		samples []lagSample
		want    time.Duration
	}{
		"nothing was slow":            {due: now.Add(time.Minute), want: 2 * time.Second},
		"nothing was measured":        {want: 2 * time.Second},
		"a little slow":               {samples: []lagSample{sample(time.Second, 50*time.Millisecond)}, want: 3 * time.Second},
		"slower before":               {samples: []lagSample{sample(2*time.Second, 300*time.Millisecond), sample(time.Second, 50*time.Millisecond)}, want: 8 * time.Second},
		"very slow":                   {samples: []lagSample{sample(time.Second, 5*time.Second)}, want: 2*time.Second + maxPatience},
		"slow a while ago":            {samples: []lagSample{sample(recentLag+time.Second, 5*time.Second)}, want: 2 * time.Second},
		"not answered for some hours": {due: now.Add(-time.Hour), want: 2*time.Second + maxPatience},
	} {
		m := &lagMeter{due: c.due, samples: c.samples}
		if got := m.patience(2 * time.Second); got != c.want {
			t.Errorf("%s: %s, expected %s", name, got, c.want)
		}
	}
	if got := (*lagMeter)(nil).patience(time.Second); got != time.Second {
		t.Errorf("without a meter: %s", got)
	}
}

// TestStarvedHarnessIsNotTheAuthorizersFault asks a right authorizer that takes 3.3 s once, while the harness itself stands still.
func TestStarvedHarnessIsNotTheAuthorizersFault(t *testing.T) {
	b := plan(t, smallSeed)
	m, err := newLagMeter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	m.mu.Lock() // as if nothing of the harness ran
	began := time.Now()
	time.Sleep(700 * time.Millisecond)
	m.mu.Unlock()
	if _, lag := m.measure(began, time.Now()); lag < 500 {
		t.Errorf("the harness stood still for 700 ms, and measured %d ms", lag)
	}
	c, err := startWebhook(t, reference.Handler(b.Policy.Decide)).newClient(false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	c.lag = m
	if a := c.ask(t.Context(), plainCheck, b.Scenario[0]); slices.Contains(judge(b.Scenario[0], a), reasonSlow) {
		t.Errorf("%+v", a)
	}
}
