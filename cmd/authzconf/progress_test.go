package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/verdicts"
)

func result(v verdicts.Verdict, scenario, reason string) conformance.Event {
	return conformance.Event{Result: &verdicts.Result{Scenario: scenario, Cell: "cell", Verdict: v, Reason: reason}, Took: 7 * time.Millisecond}
}

// TestProgressOnATerminal expects one line that is rewritten, below whole lines
// of what did not pass.
func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, 2, false)
	p.live = true
	p.event(conformance.Event{Text: "cell: ready"})
	p.event(result(verdicts.Passed, "a", ""))
	p.event(result(verdicts.Failed, "b", "step 0: code: want 200, got 403"))
	p.end()
	erase := "\r\x1b[K"
	want := erase + "cell: ready\n" +
		erase + "1/2 scenarios, 0 not passed, 0 s" +
		erase + "failed   cell  b (7 ms)\n" +
		erase + "         step 0: code: want 200, got 403\n" +
		erase + "2/2 scenarios, 1 not passed, 0 s" +
		erase
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

// TestProgressInALog expects whole lines without escapes, a line of status only
// every so often, and the log of a target that died only once.
func TestProgressInALog(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, 5, false)
	died := "etcd: ended by itself\nlast 1 log lines:\n  oh no"
	p.event(conformance.Event{Text: "cell: ready"})
	p.event(result(verdicts.Passed, "a", ""))
	p.event(result(verdicts.Invalid, "b", died))
	p.event(result(verdicts.Invalid, "c", died))
	p.shown = p.shown.Add(-2 * plainEvery)
	p.event(result(verdicts.Invalid, "d", died))
	p.end()
	want := "cell: ready\ninvalid  cell  b (7 ms)\n         " + died + "\n4/5 scenarios, 3 not passed, 0 s\n"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

// TestProgressVerbose expects a line for each scenario.
func TestProgressVerbose(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, 2, true)
	p.event(result(verdicts.Passed, "a", ""))
	p.event(result(verdicts.Invalid, "b", "oh no"))
	p.event(result(verdicts.Invalid, "c", "oh no"))
	for _, line := range []string{"passed   cell  a (7 ms)\n", "invalid  cell  b (7 ms)\n         oh no\n", "invalid  cell  c (7 ms)\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is not in %q", line, out.String())
		}
	}
}
