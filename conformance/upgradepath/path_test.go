package upgradepath

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/scenarios"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text string
		ha   bool
		want []Stage
		fail string
	}{
		{text: "1.36,1.37", want: []Stage{{Kubernetes: "1.36"}, {Kubernetes: "1.37"}}},
		{text: " 1.36 , 1.37 ", want: []Stage{{Kubernetes: "1.36"}, {Kubernetes: "1.37"}}},
		{text: "1.34,1.35+gate,1.34", want: []Stage{{Kubernetes: "1.34"}, {Kubernetes: "1.35", Gate: scenarios.GateOn}, {Kubernetes: "1.34"}}},
		{text: "1.36,1.36-gate,1.36", want: []Stage{{Kubernetes: "1.36"}, {Kubernetes: "1.36", Gate: scenarios.GateOff}, {Kubernetes: "1.36"}}},
		{text: "1.36,1.36+gate", want: []Stage{{Kubernetes: "1.36"}, {Kubernetes: "1.36", Gate: scenarios.GateOn}}}, // the same behaviour by another command line
		{text: "1.36,1.37@1.36", want: []Stage{{Kubernetes: "1.36"}, {Kubernetes: "1.37", Emulate: "1.36"}}},
		{text: "1.36,1.37@1.35+gate", want: []Stage{{Kubernetes: "1.36"}, {Kubernetes: "1.37", Emulate: "1.35", Gate: scenarios.GateOn}}},
		{text: "1.36,1.36/webhook-first", want: []Stage{{Kubernetes: "1.36"}, {Kubernetes: "1.36", Chain: "webhook-first"}}},
		{text: "1.33,1.37@1.36-gate/webhook-last", want: []Stage{{Kubernetes: "1.33"}, {Kubernetes: "1.37", Emulate: "1.36", Gate: scenarios.GateOff, Chain: "webhook-last"}}},
		{text: "1.35+gate,1.36,1.35+gate", ha: true, want: []Stage{{Kubernetes: "1.35", Gate: scenarios.GateOn}, {Kubernetes: "1.36"}, {Kubernetes: "1.35", Gate: scenarios.GateOn}}},
		{text: "1.33,1.37", want: []Stage{{Kubernetes: "1.33"}, {Kubernetes: "1.37"}}}, // one API server: nothing runs beside it
		{text: "1.36,1.37-gate,nodes=1.37", want: []Stage{{Kubernetes: "1.36"}, {Kubernetes: "1.37", Gate: scenarios.GateOff}, {Kubernetes: "1.37", Gate: scenarios.GateOff, Nodes: "1.37"}}},

		{text: "", fail: `path "": stage 1 is empty; write versions separated by commas, such as 1.35+gate,1.36,1.35+gate`},
		{text: "1.36,", fail: `path "1.36,": stage 2 is empty; `},
		{text: "1.36, ,1.37", fail: `path "1.36, ,1.37": stage 2 is empty; `},
		{text: "1.36", fail: `path "1.36": a path has two stages at least, this one has 1`},
		{text: "1.36,+gate", fail: `path "1.36,+gate": stage 2: kubernetes is missing (expected a version such as 1.36)`},
		{text: "1.36,@1.35", fail: "stage 2: kubernetes is missing"},
		{text: "1.36,9.99", fail: `path "1.36,9.99": stage 2: Kubernetes version "9.99" is not one of those that can be run here; use one of `},
		{text: "9.99,1.36", fail: `path "9.99,1.36": stage 1: Kubernetes version "9.99"`},
		{text: "1.36,1.36+gate-gate", fail: `stage 2: Kubernetes version "1.36+gate"`},
		{text: "1.36,1.36+gates", fail: `stage 2: Kubernetes version "1.36+gates"`},
		{text: "1.36,1.37@1.20", fail: `stage 2: emulated version "1.20": Kubernetes 1.37 can emulate 1.34 to 1.37`},
		{text: "1.36,1.36@1.37", fail: `stage 2: emulated version "1.37": Kubernetes 1.36 can emulate 1.33 to 1.36`},
		{text: "1.33,1.34+gate,1.33", fail: "has no feature gate ConstrainedImpersonation, which came with 1.35: leave the gate out"},
		{text: "1.34-gate,1.36", fail: "stage 1: Kubernetes 1.34."},
		{text: "1.36,1.37@1.34+gate", fail: "stage 2: Kubernetes 1.34 has no feature gate"},
		{text: "1.36,1.36", fail: `path "1.36,1.36": stage 2: 1.36 is what stage 1 is: a stage has to change something`},
		{text: "1.36,1.37@1.36+gate/webhook-first,1.37@1.36+gate/webhook-first", fail: "stage 3: 1.37@1.36+gate/webhook-first is what stage 2 is: "},
		{text: "1.36,1.36/moon", fail: `stage 2: there is no authorizer chain "moon" in fixtures/chains`},
		{text: "1.36,1.36/../audit-policy", fail: `stage 2: there is no authorizer chain "../audit-policy" in fixtures/chains`},
		{text: "nodes=1.37,1.37", fail: `stage 1: nodes are replaced after another stage (expected a version of the API server first)`},
		{text: "1.36,nodes=9.99", fail: `stage 2: Kubernetes version "9.99" is not one of those`},
		{text: "1.36,1.37,nodes=1.37,1.37-gate,nodes=1.37", fail: `stage 5: the nodes are of 1.37 already: a stage has to change something`},
		{text: "1.36,nodes=1.35", ha: true, fail: "stage 2: highAvailability is for paths whose nodes stay"},
		{text: "1.35+gate,1.37,1.36", ha: true, fail: "stage 2: from 1.35 to 1.37 in one step: API servers that run side by side may differ by one minor version"},
		{text: "1.36,1.34", ha: true, fail: "stage 2: from 1.36 to 1.34 in one step: "},
	} {
		t.Run(c.text, func(t *testing.T) {
			p, err := Parse(c.text, Options{HighAvailability: c.ha})
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Fatalf("got %v, want %s", err, c.fail)
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("one thing is wrong, said in several lines: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(p.Stages, c.want) || p.Name != c.text || p.HighAvailability != c.ha {
				t.Errorf("got %+v", p)
			}
		})
	}
}

// Whatever is wrong with several stages is said at once, a line each, and nothing
// is said of a stage because the one before it is wrong.
func TestParseReportsEveryStage(t *testing.T) {
	_, err := Parse("1.34+gate,1.36,1.36,1.36/moon", Options{})
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	for i, want := range []string{"stage 1: Kubernetes 1.34", "stage 3: 1.36 is what stage 2 is", "stage 4: there is no authorizer chain"} {
		if i >= len(lines) || !strings.Contains(lines[i], want) {
			t.Errorf("line %d: want %s in:\n%v", i+1, want, err)
		}
	}
	if len(lines) != 3 {
		t.Errorf("%d lines:\n%v", len(lines), err)
	}
}

// roundTrip reads each stage as it is printed, beside another so that there is a
// path.
func roundTrip(t *testing.T, stages []Stage) {
	t.Helper()
	for _, stage := range stages {
		text := stage.String()
		other := "1.33"
		if text == other {
			other = "1.34"
		}
		again, err := Parse(other+","+text, Options{})
		if err != nil {
			t.Errorf("%+v is printed as %s, which is not read: %v", stage, text, err)
			continue
		}
		if got := again.Stages[1]; !reflect.DeepEqual(got, stage) {
			t.Errorf("%+v is printed as %s and read as %+v", stage, text, got)
		}
	}
}

func TestStringRoundTrip(t *testing.T) {
	var stages []Stage
	for _, kubernetes := range []string{"1.36", "v1.36", "1.37"} {
		for _, emulate := range []string{"", "1.35", "1.36"} {
			for _, gate := range []scenarios.Gate{"", scenarios.GateOn, scenarios.GateOff} {
				for _, chain := range []string{"", "webhook-first", "abac"} {
					stages = append(stages, Stage{Kubernetes: kubernetes, Emulate: emulate, Gate: gate, Chain: chain})
				}
			}
		}
	}
	roundTrip(t, stages)
	if got := (Stage{Kubernetes: "1.36", Gate: scenarios.GateDefault}).String(); got != "1.36" {
		t.Errorf("the default gate is printed: %s", got)
	}
}

func TestTargets(t *testing.T) {
	p, err := Parse("1.34,1.35+gate,1.36,1.36-gate,1.37@1.36,1.37@1.36/webhook-first", Options{})
	if err != nil {
		t.Fatal(err)
	}
	targets, err := p.Targets(matrix.Matrix{})
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name, emulated string
		gate           scenarios.Gate
		chain          string
	}{
		{"1-1.34", "", scenarios.GateDefault, ""},
		{"2-1.35-gate-on", "", scenarios.GateOn, ""},
		{"3-1.36", "", scenarios.GateDefault, ""},
		{"4-1.36-gate-off", "", scenarios.GateOff, ""},
		{"5-1.37-as-1.36", "1.36", scenarios.GateDefault, ""},
		{"6-1.37-as-1.36-webhook-first", "1.36", scenarios.GateDefault, "webhook-first"},
	}
	for i, w := range want {
		o := targets[i]
		if o.Cell.Name != w.name || o.Cell.Emulated != w.emulated || o.Cell.Gate != w.gate || o.Chain != w.chain {
			t.Errorf("stage %d: %+v, chain %q, want %+v", i+1, o.Cell, o.Chain, w)
		}
		if !strings.HasPrefix(o.Cell.Kubernetes, p.Stages[i].Kubernetes+".") || o.Release.Version != o.Cell.Kubernetes {
			t.Errorf("stage %d: Kubernetes %s, release %+v", i+1, o.Cell.Kubernetes, o.Release)
		}
	}
	if len(targets) != len(want) {
		t.Errorf("%d targets", len(targets))
	}
	if _, err := (&Path{Stages: []Stage{{Kubernetes: "9.99"}}}).Targets(matrix.Matrix{}); err == nil {
		t.Error("a version that there is not has a target")
	}
}

func TestMadeOnAndTakesPart(t *testing.T) {
	p := &Path{Setups: []string{"bob", "alice"}, Stages: []Stage{{}, {Make: []string{"alice"}}, {Make: []string{"alice", "carol"}}}}
	for name, want := range map[string]int{"bob": 0, "alice": 1, "carol": 2, "dave": 0} {
		if got := p.MadeOn(name); got != want {
			t.Errorf("%s is made on stage %d, want %d", name, got, want)
		}
	}
	for name, want := range map[string]bool{"bob": true, "alice": true, "carol": false, "": false} {
		if got := p.TakesPart(name); got != want {
			t.Errorf("%s takes part: %t", name, got)
		}
	}
	all := &Path{}
	if !all.TakesPart("carol") || all.TakesPart("") {
		t.Error("without a list every setup takes part, and a scenario without one does not")
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"1.34,1.35+gate,1.36", "1.36,1.37@1.36-gate/webhook-first", "", ",", "1.36,1.36/../x", "v1.36,1.37@v1.36", "1.36,1.36@", "1.36/,1.37"} {
		f.Add(text, false)
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, ha bool) {
		p, err := Parse(text, Options{HighAvailability: ha})
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		targets, err := p.Targets(matrix.Matrix{})
		if err != nil || len(targets) != len(p.Stages) {
			t.Fatalf("accepted, but there are no targets: %v", err)
		}
		roundTrip(t, p.Stages)
	})
}

// asPrinted is the recipe of KEP-5284 with the versions of its text.
const asPrinted = "kep-recipe-as-printed.yaml"

// Every path of the project can be walked but for one, which is there to be
// refused.
func TestFilesOfCI(t *testing.T) {
	files, err := filepath.Glob("../../ci/paths/*.yaml")
	if err != nil || len(files) < 16 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	refused, err := local.ParseRelease("1.34")
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]string{}
	for _, file := range files {
		name := filepath.Base(file)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Load("ci/paths/"+name, data, Options{})
		if name == asPrinted {
			want := "ci/paths/kep-recipe-as-printed.yaml:9:6: stage 2: Kubernetes " + refused.Version + " has no feature gate ConstrainedImpersonation, which came with 1.35: leave the gate out"
			if err == nil || err.Error() != want {
				t.Errorf("%s: got %v\nwant %s", name, err, want)
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		if p.Name != strings.TrimSuffix(name, ".yaml") {
			t.Errorf("%s is called %s", name, p.Name)
		}
		if other := described[p.Description]; other != "" {
			t.Errorf("%s and %s have the same description", name, other)
		}
		described[p.Description] = name
	}
}
