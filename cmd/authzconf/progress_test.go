package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// planned returns a plan of n cases.
func planned(n int) (cases []product.Case) {
	for i := range n {
		cases = append(cases, product.NewCase("cell", fmt.Sprint(i), scenarios.Core))
	}
	return cases
}

// judge reports a verdict to a display.
func judge(p *productProgress, v verdicts.Verdict, name, reason string) {
	p.addResult(product.NewCase("cell", name, scenarios.Core), reports.Result{Case: name, Verdict: v, Reason: reason})
}

// TestProgressOnATerminal expects one line that is rewritten, below complete lines for what did not pass.
func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := newProductProgress(&out, planned(2), false)
	p.live = true
	p.say("cell: ready")
	judge(p, verdicts.Passed, "a", "")
	judge(p, verdicts.Failed, "b", "step 0: code: want 200, got 403")
	p.end()
	erase := "\r\x1b[K"
	want := erase + "cell: ready\n" +
		erase + "1/2 cases, 0 not passed, 0 s" +
		erase + "failed   cell  b\n" +
		erase + "         step 0: code: want 200, got 403\n" +
		erase + "2/2 cases, 1 not passed, 0 s" +
		erase
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

// TestProgressInALog expects complete lines without escapes, a line of status only now and then, and the log of a
// target that died only once.
func TestProgressInALog(t *testing.T) {
	var out bytes.Buffer
	p := newProductProgress(&out, planned(5), false)
	died := "etcd: ended by itself\nlast 1 log lines:\n  oh no"
	p.say("cell: ready")
	judge(p, verdicts.Passed, "a", "")
	judge(p, verdicts.Invalid, "b", died)
	judge(p, verdicts.Invalid, "c", died)
	p.shown = p.shown.Add(-2 * plainEvery)
	judge(p, verdicts.Invalid, "d", died)
	p.end()
	want := "cell: ready\ninvalid  cell  b\n         " + died + "\n4/5 cases, 3 not passed, 0 s\n"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

// TestProgressVerbose expects a line for each scenario.
func TestProgressVerbose(t *testing.T) {
	var out bytes.Buffer
	p := newProductProgress(&out, planned(2), true)
	judge(p, verdicts.Passed, "a", "")
	judge(p, verdicts.Invalid, "b", "oh no")
	judge(p, verdicts.Invalid, "c", "oh no")
	for _, line := range []string{"passed   cell  a\n", "invalid  cell  b\n         oh no\n", "invalid  cell  c\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is not in %q", line, out.String())
		}
	}
}
