package certify

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/verdicts"
)

// underRate are the lines of a rate as the harness leaves them behind.
func underRate(b *Plan, check string, rate, planned int) []Answer {
	lines := []Answer{{Check: check, Stage: &Stage{Rate: rate, Planned: planned, LimitUs: 1000, Micros: int64(planned) * 1e6 / int64(rate)}}}
	for i := range planned {
		a := answered(apart(b.Scenario, i))
		a.Check, a.Micros = check, 500
		lines = append(lines, a)
	}
	return lines
}

// TestLinesAreOneThing has lines that are counted as one thing and judged as another, of checks that there are not, and of
// load what no schedule leaves behind: none of them is judged.
func TestLinesAreOneThing(t *testing.T) {
	b := plan(t, smallSeed)
	wrong := answered(b.Scenario[0])
	wrong.keep([]byte(`{}`), b.Scenario[0])
	for name, c := range map[string]struct {
		refused bool
		edit    func(rate []Answer) []Answer
	}{
		"honest":                    {false, func(rate []Answer) []Answer { return rate }},
		"an answer is lost":         {false, func(rate []Answer) []Answer { return slices.Delete(rate, 5, 6) }},
		"a wrong answer as a stage": {true, func(rate []Answer) []Answer { wrong.Stage = &Stage{}; return append(rate, wrong) }},
		"a wrong answer as seen": {true, func(rate []Answer) []Answer {
			wrong.Stage, wrong.Seen = nil, &Seen{NotSupported: "x"}
			return append(rate, wrong)
		}},
		"a wrong answer as versions":   {true, func(rate []Answer) []Answer { wrong.Seen, wrong.Check = nil, versionsCheck; return append(rate, wrong) }},
		"another check":                {true, func(rate []Answer) []Answer { wrong.Check = "unheard-of"; return append(rate, wrong) }},
		"an answer twice":              {true, func(rate []Answer) []Answer { rate[5] = rate[6]; return rate }},
		"one for one that is lost":     {true, func(rate []Answer) []Answer { return append(slices.Delete(rate, 5, 6), rate[5]) }},
		"answers without a stage":      {true, func(rate []Answer) []Answer { return rate[1:] }},
		"a stage twice":                {true, func(rate []Answer) []Answer { return append(rate, rate[0]) }},
		"a rate at which nothing was":  {true, func(rate []Answer) []Answer { rate[0].Stage.Planned = 0; return rate[:1] }},
		"less was planned than it was": {true, func(rate []Answer) []Answer { rate[0].Stage.Planned = 15; return rate }},
		"a higher rate": {true, func([]Answer) []Answer {
			r := underRate(b, "load-10", 10, 40)
			for i := range r {
				r[i].Check = "load-20"
			}
			r[0].Stage.Rate = 20
			return r
		}},
		"a rate for half a second": {true, func(rate []Answer) []Answer { rate[0].Stage.Micros /= 2; return rate }},
		"a volume of nothing": {true, func(rate []Answer) []Answer {
			return append(rate, Answer{Check: volume, Stage: &Stage{Planned: -9, Right: 5}})
		}},
		"more right than asked": {true, func(rate []Answer) []Answer {
			return append(rate, Answer{Check: volume, Stage: &Stage{Planned: 5, Right: 6}})
		}},
	} {
		_, err := b.Judge(c.edit(underRate(b, "load-10", 10, 20)))
		if (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSeenIsOfItsCheck has what was seen in a cluster be of less, or of something else.
func TestSeenIsOfItsCheck(t *testing.T) {
	b := plan(t, smallSeed)
	cell := cellFor(local.Newest())
	b.onCell(cell)
	check := b.clusterPlan()[slices.IndexFunc(b.clusterPlan(), func(c clusterCheck) bool { return c.Scenario != nil })]
	scenario := func(change func(*verdicts.Evidence)) []Answer {
		e := &verdicts.Evidence{
			Scenario: check.Scenario.ID, Digest: check.Scenario.Digest, Cell: cell, Suffix: b.suffixOf(check.Scenario), Authorizer: true,
			Capabilities: server.ExpectedFacts(server.Options{Cell: cell}).Capabilities,
		}
		change(e)
		return []Answer{{Check: inCluster, Vector: "cluster", Seen: &Seen{Cell: &cell}}, {Check: inCluster, Vector: check.ID, Seen: &Seen{Scenario: e}}}
	}
	for name, c := range map[string]struct {
		answers []Answer
		refused bool
	}{
		"honest":                  {scenario(func(*verdicts.Evidence) {}), false},
		"nothing was shown of it": {scenario(func(e *verdicts.Evidence) { e.Capabilities = nil }), true},
		"on another API server":   {scenario(func(e *verdicts.Evidence) { e.Cell.Gate = "off" }), true},
		"of another seed":         {scenario(func(e *verdicts.Evidence) { e.Suffix = "xyz" }), true},
		"of another text":         {scenario(func(e *verdicts.Evidence) { e.Digest = "xyz" }), true},
		"a cell of nobody's":      {[]Answer{{Check: inCluster, Vector: "cluster", Seen: &Seen{Cell: &verdicts.Cell{Kubernetes: cell.Kubernetes, Gate: "off"}}}}, true},
	} {
		if _, err := b.Judge(c.answers); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBundleSaysNothingElse has bundles of which a part is not made of their claims and answers: comments, fields in another
// order, files that nobody wrote, and a tar that goes on.
func TestBundleSaysNothingElse(t *testing.T) {
	_, bundle := bundled(t, plan(t, smallSeed), example, Core)
	for name, edit := range map[string]func(Bundle){
		"a comment":            func(b Bundle) { b[certificationFile] = append(b[certificationFile], "# levels: [soak]\n"...) },
		"blanks in an answer":  func(b Bundle) { rewritten(b, `"check":`, `"check": `) },
		"what was left out":    func(b Bundle) { rewritten(b, `"check":"plain"`, `"check":"plain","said":"allowed everything"`) },
		"a file":               func(b Bundle) { b["soak.txt"] = []byte("certified for a week") },
		"an empty file":        func(b Bundle) { b["badge.png"] = nil },
		"a file in a folder":   func(b Bundle) { b["x/certification.txt"] = []byte("x") },
		"a file by other case": func(b Bundle) { b["Summary.MD"] = []byte("x") },
	} {
		edited := maps.Clone(bundle)
		edit(edited)
		if _, differences, err := direct(t).Verify(edited); err != nil || len(differences) == 0 {
			t.Errorf("%s: %v %v", name, differences, err)
		}
	}
	var out bytes.Buffer
	if err := bundle.Tar(&out, "", nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.tar.gz")
	if err := os.WriteFile(path, slices.Repeat(out.Bytes(), 2), 0o600); err != nil { // a second member
		t.Fatal(err)
	}
	if _, err := OpenBundle(path); err == nil || !strings.Contains(err.Error(), "behind its end") {
		t.Errorf("a tar that goes on: %v", err)
	}
}

// rewritten edits the evidence and has the certification claim that it is so.
func rewritten(b Bundle, from, to string) {
	was := digest(b[evidenceFile])
	b[evidenceFile] = bytes.Replace(b[evidenceFile], []byte(from), []byte(to), 1)
	b[certificationFile] = bytes.Replace(b[certificationFile], []byte(was), []byte(digest(b[evidenceFile])), 1)
}
