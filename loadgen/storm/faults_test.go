package storm

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// faultless returns a block of a profile as its schedule has it, with its log.
func faultless(t *testing.T) (*profile.Profile, *run.Block, []pacer.Send) {
	t.Helper()
	p, err := profile.Load("steady", nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Nodes = 24
	planned := orderBlocks(p, 7)[0]
	sends := p.Plan(planned.seed).Stripe(0, 1)
	n := int64(len(sends))
	b := &run.Block{
		Agents:  p.Agents(),
		Length:  run.Duration(p.Block),
		Planned: n,
		Sent:    n,
		Log:     population.Planned(sends, 5*time.Millisecond),
	}
	for range n {
		b.Lag.Record(p.LateTolerance)
	}
	h, err := population.NewHistory(p, planned.side.Server, "1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	if b.Predicted, err = h.Predict(planned.side.Does(), time.Now(), slices.Clone(b.Log)); err != nil {
		t.Fatal(err)
	}
	return p, b, sends
}

// TestFaults checks that our own faults are found, and that there are none in blocks on the worst machines and servers.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *profile.Profile, b *run.Block)
		want   string
	}{
		"none": {func(*profile.Profile, *run.Block) {}, ""},
		"a slow machine": {func(_ *profile.Profile, b *run.Block) {
			for i := range b.Log {
				b.Log[i].From += 9 * time.Second
				b.Log[i].To += time.Minute
			}
			b.Lag.RecordN(9*time.Second, 7)
			b.Late = 7
		}, ""},
		"requests that were never sent": {func(_ *profile.Profile, b *run.Block) {
			b.Sent, b.Dropped, b.Log = b.Sent-5, 5, b.Log[5:]
		}, ""},
		"requests that were sent again": {func(_ *profile.Profile, b *run.Block) {
			b.Retried, b.Log = 2, append(b.Log, b.Log[3], b.Log[3])
		}, ""},
		"agents that follow the server": {func(_ *profile.Profile, b *run.Block) { b.FollowsServer, b.Planned = true, 3 }, ""},

		"late ones in time":    {func(_ *profile.Profile, b *run.Block) { b.Lag.RecordN(time.Second, 10) }, "0 requests are counted as late"},
		"a longer block":       {func(_ *profile.Profile, b *run.Block) { b.Length *= 2 }, "the profile says 20s"},
		"fewer planned":        {func(_ *profile.Profile, b *run.Block) { b.Planned-- }, "requests are counted as planned"},
		"not in the schedule":  {func(_ *profile.Profile, b *run.Block) { b.Log[0].Turn = 99 }, "is not in the schedule"},
		"sent twice, not once": {func(_ *profile.Profile, b *run.Block) { b.Log[0] = b.Log[1] }, "requests are counted as sent"},
		"no range":             {func(_ *profile.Profile, b *run.Block) { b.Predicted.Checks[0].Low = b.Predicted.Checks[0].High + 1 }, "is not a range"},
		"more agents":          {func(_ *profile.Profile, b *run.Block) { b.Predicted.Agents = b.Agents + 1 }, "are said to have asked"},
		"more first contacts":  {func(_ *profile.Profile, b *run.Block) { b.Predicted.First = b.Predicted.Requests + 1 }, "for the first time"},
		"too seldom":           {func(_ *profile.Profile, b *run.Block) { b.Predicted.Fewest = 9 }, "are said to have sent"},
		"too often":            {func(_ *profile.Profile, b *run.Block) { b.Predicted.Most = 1 }, "are said to have sent"},
	} {
		t.Run(name, func(t *testing.T) {
			p, b, sends := faultless(t)
			c.change(p, b)
			got := strings.Join(append(findFaults(p, b, sends), findPredictionFaults(b)...), "; ")
			if c.want == "" && got != "" ||
				!strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
