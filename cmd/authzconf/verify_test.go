package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/reports/load"
)

// TestVerifyKnowsEveryKind holds verify to what it says of a folder of each kind.
func TestVerifyKnowsEveryKind(t *testing.T) {
	for _, k := range reportKinds() {
		t.Run(k.Name, func(t *testing.T) {
			dir, head := t.TempDir(), map[string]any{}
			for field, value := range k.Head {
				head[field] = strings.ReplaceAll(value, "*", "v9")
			}
			if err := k.WriteReport(dir, head, nil); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			code := run([]string{"verify", dir}, &out, &errs)
			if code == exitPassed || strings.Contains(out.String(), "verified") {
				t.Errorf("exit %d, with %q, of a report that says nothing", code, out.String())
			}
		})
	}
}

func TestVerifyLoad(t *testing.T) {
	var out, errs bytes.Buffer
	dir := savedRun(t, time.Millisecond)
	r, thresholds := profiled(t, dir)
	if err := load.Write(dir, r, load.Judge(r, thresholds)); err != nil {
		t.Fatal(err)
	}
	if code := run([]string{"verify", dir}, &out, &errs); code != exitPassed {
		t.Errorf("exit %d: %s", code, errs.String())
	}
	if !strings.HasPrefix(out.String(), "verified: judged again") {
		t.Errorf("printed %q", out.String())
	}
}
