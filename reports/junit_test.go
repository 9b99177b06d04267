package reports

import (
	"encoding/xml"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/verdicts"
)

// rowsOf are the rows that TestGrid makes of a JUnit file, which are called SUITE.TEST, each with its class.
func rowsOf(t *testing.T, r *ConformanceReport, evidence []*verdicts.Evidence, texts Texts) map[string]string {
	t.Helper()
	data, err := renderText("junit", newPage(r, evidence, texts.Set))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Suites []struct {
			Name  string `xml:"name,attr"`
			Cases []struct {
				Name  string `xml:"name,attr"`
				Class string `xml:"classname,attr"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, s := range file.Suites {
		for _, c := range s.Cases {
			name := s.Name + "." + c.Name
			if rows[name] != "" {
				t.Errorf("%s is there twice: TestGrid would tell them apart by a number", name)
			}
			rows[name] = c.Class
		}
	}
	return rows
}

// TestRowsAreStable wants a scenario on a cell to be the same row of TestGrid for ever: whatever becomes of it, with another
// seed, on another day and machine, with another patch release and in another order.
func TestRowsAreStable(t *testing.T) {
	texts := testTexts(t)
	failing, evidence := mixedRun(t, texts)
	want := rowsOf(t, failing, evidence, texts)
	r, again := testRun(t, texts, bothGates(), nil)
	r.Complete(texts.Set, again, nil)
	r.Seed, r.SuiteVersion, r.Command = 7, "v0.2.0", []string{"/home/somebody/authzconf", "run"}
	r.Started, r.Finished = r.Started.Add(100*24*time.Hour), r.Finished.Add(101*24*time.Hour)
	for i := range r.Cells {
		c := &r.Cells[i]
		slices.Reverse(c.Results)
		slices.Reverse(c.NotRun)
		c.Kubernetes, c.Witness.GitVersion, c.Witness.Platform, c.WallSeconds = "1.37.2", "v1.37.2", "linux/arm64", 300
		c.Witness.Programs[0].Origin = "TEST_ASSET_KUBE_APISERVER=/home/somebody/kube-apiserver"
	}
	if d := cmp.Diff(want, rowsOf(t, r, again, texts)); d != "" {
		t.Errorf("rows of another run (-want +got):\n%s", d)
	}
	for name := range want {
		cell, scenario, ok := strings.Cut(name, ".kep-5284/")
		if _, known := texts.Set.Get("kep-5284/" + scenario); ok && (!known || !strings.HasPrefix(cell, "1.37-gate-")) {
			t.Errorf("%s is not a cell and a scenario", name)
		}
	}
	if len(want) < 10 {
		t.Errorf("only %d rows", len(want))
	}
}
