package profile

import (
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
)

// TestSteady checks that a block is counted in the steady state if it has whole cycles, beginning after two lives of a
// cached check if arrivals are random.
func TestSteady(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		arrivals      Arrivals
		settle, block time.Duration
		want          bool
	}{
		"7 and a half times":                {Arrivals{Kind: pacer.Periodic, Every: 4 * s}, 0, 30 * s, false},
		"a multiple of period and life":     {Arrivals{Kind: pacer.Periodic, Every: 4 * s}, 0, 40 * s, false},
		"five cycles of 12 s":               {Arrivals{Kind: pacer.Periodic, Every: 4 * s}, 20 * s, 80 * s, true},
		"five cycles of 18 s":               {Arrivals{Kind: pacer.Constant, Every: 9 * s}, 0, 90 * s, true},
		"less often than what is forgotten": {Arrivals{Kind: pacer.Periodic, Every: 30 * s}, 0, 30 * s, true},
		"as often as what is forgotten":     {Arrivals{Kind: pacer.Periodic, Every: 10 * s}, 0, 30 * s, false},
		"a part of a period":                {Arrivals{Kind: pacer.Periodic, Every: 12 * s}, 0, 20 * s, false},
		"drawn, from the beginning":         {Arrivals{Kind: pacer.Poisson, Every: 4 * s}, 0, 60 * s, false},
		"drawn, later":                      {Arrivals{Kind: pacer.Poisson, Every: 4 * s}, 20 * s, 60 * s, true},
		"jittered, later":                   {Arrivals{Kind: pacer.Periodic, Every: 4 * s, Jitter: 0.1}, 20 * s, 80 * s, true},
		"jittered, a part of a period":      {Arrivals{Kind: pacer.Periodic, Every: 4 * s, Jitter: 0.1}, 20 * s, 50 * s, false},
		"waves":                             {Arrivals{Kind: pacer.Waves, Every: s, MaxUnavailable: 1}, 0, 30 * s, false},
	} {
		p := Defaults()
		p.Nodes, p.Arrivals, p.Settle, p.Block = 10, c.arrivals, c.settle, c.block
		if got := p.Steady(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestBlockFitsCycle checks that a profile that is counted after some time has blocks of whole cycles, whatever --every
// is.
func TestBlockFitsCycle(t *testing.T) {
	text := strings.Replace(good, "{kind: poisson, every: 12s}", "{kind: periodic, every: 30s}", 1)
	text = strings.Replace(text, "block: 20s", "block: 50s\nsettle: 20s", 1)
	text = strings.Replace(text, "coldShare: 0.6\n", "", 1)
	text = strings.NewReplacer("associated-node-cold", "arbitrary-node").Replace(text)
	p, err := Parse("p.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for every, want := range map[time.Duration]time.Duration{4 * time.Second: 80 * time.Second, 9 * time.Second: 110 * time.Second, time.Second: 130 * time.Second, time.Minute: 80 * time.Second} {
		q, err := p.Adjusted(Adjust{Every: every}, func(flag string) bool { return flag == "every" })
		if err != nil || q.Block != want {
			t.Errorf("every %s: %v, %v", every, q, err)
		}
	}
	_, err = p.Adjusted(
		Adjust{Every: 4 * time.Second, Block: 50 * time.Second},
		func(flag string) bool { return flag == "every" || flag == "duration" },
	)
	if err == nil ||
		!strings.Contains(err.Error(), "(a block of 80s)") && !strings.Contains(err.Error(), "(a block of 1m20s)") {
		t.Errorf("two and a half cycles: %v", err)
	}
}
