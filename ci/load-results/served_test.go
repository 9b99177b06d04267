package main

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/loadgen/run"
)

// servedBlock is a block in which the API server says of so many requests in 100 that they kept the second that is promised.
func servedBlock(variant, server string, within int64) run.Block {
	return run.Block{Variant: variant, Server: server, Served: []run.ServedRequests{
		{Verb: "GET", Scope: "resource", Count: 100, Within: map[string]int64{"0.5": within / 2, "1": within, "+Inf": 100}},
	}}
}

func TestServedCounts(t *testing.T) {
	for name, c := range map[string]struct {
		blocks []run.Block
		want   string
		byGate bool
		broken string
	}{
		"nothing was read":         {[]run.Block{{Variant: "a", Server: "gate-on"}}, "nothing is known", false, ""},
		"all keep it":              {[]run.Block{servedBlock("a", "gate-on", 99), servedBlock("a", "gate-off", 100)}, "2 of 2", false, ""},
		"one breaks it":            {[]run.Block{servedBlock("a", "gate-on", 90), servedBlock("a", "gate-off", 100)}, "1 of 2", true, "a on gate-on, by the API server: 90.00 % of 100 (GET, resource) within 1s"},
		"both break it":            {[]run.Block{servedBlock("a", "gate-on", 90), servedBlock("b", "gate-off", 90)}, "0 of 2", false, "b on gate-off"},
		"blocks are added up":      {[]run.Block{servedBlock("a", "gate-on", 98), servedBlock("a", "gate-on", 100)}, "1 of 1", false, ""},
		"without the gate it does": {[]run.Block{servedBlock("a", "gate-on", 100), servedBlock("a", "gate-off", 90)}, "1 of 2", false, "a on gate-off"},
	} {
		t.Run(name, func(t *testing.T) {
			var counts servedCounts
			figures := counts.add(column{served: measureServed(&run.Run{Profile: "rollout-burst", Blocks: c.blocks})})
			if !strings.HasPrefix(counts.String(), c.want) || counts.byGate != c.byGate {
				t.Errorf("%s, by the gate %t; want %s, %t", counts, counts.byGate, c.want, c.byGate)
			}
			if text := strings.Join(figures, "\n"); (c.broken == "") != (text == "") || !strings.Contains(text, c.broken) {
				t.Errorf("figures %q, want %q", text, c.broken)
			}
		})
	}
}

// TestServedOfRestart checks that nothing is taken from a server that was restarted: its counters began again.
func TestServedOfRestart(t *testing.T) {
	r := run.Run{Profile: "apiserver-restart", Blocks: []run.Block{servedBlock("a", "gate-on", 99)}}
	if got := measureServed(&r); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}
