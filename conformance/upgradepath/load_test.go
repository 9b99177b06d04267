package upgradepath

import (
	"reflect"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/scenarios"
)

const described = "description: what is shown\n"

func TestLoad(t *testing.T) {
	const whole = described + `highAvailability: true
setups: [bob, alice]
stages:
  - {kubernetes: "1.36", make: [bob]}
  - kubernetes: "1.37"
    emulate: "1.36"
    gate: on
    chain: webhook-first
    fault: kill-apiserver
    make: [alice]
`
	p, err := Load("some/where/mine.yaml", []byte(whole), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := &Path{
		Name: "mine", Description: "what is shown", HighAvailability: true, Setups: []string{"bob", "alice"},
		Stages: []Stage{
			{Kubernetes: "1.36", Make: []string{"bob"}},
			{Kubernetes: "1.37", Emulate: "1.36", Gate: scenarios.GateOn, Chain: "webhook-first", Fault: KillAPIServer, Make: []string{"alice"}},
		},
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got  %+v\nwant %+v", p, want)
	}
}

func TestLoadRefuses(t *testing.T) {
	const first = described + "stages:\n- {kubernetes: \"1.36\"}\n"
	for _, c := range []struct{ name, text, want string }{
		{"unknown field", described + "legs: []\n", `f.yaml:2:1: unknown field "legs"`},
		{"unknown field of a stage", first + "- {kubernetes: \"1.37\", version: 1}\n", `f.yaml:4:24: unknown field "version"`},
		{"wrong type", described + "stages: 1.36,1.37\n", "f.yaml:2:9: "},
		{"two documents", first + "---\n" + first, "f.yaml:5:1: the file holds 2 YAML documents"},
		{"empty", "", "f.yaml:1:1: the file is empty"},
		{"no description", "stages:\n- {kubernetes: \"1.36\"}\n- {kubernetes: \"1.37\"}\n", "f.yaml: description is missing (expected what the path shows)"},
		{"a description of nothing", "description: ' '\nstages:\n- {kubernetes: \"1.36\"}\n- {kubernetes: \"1.37\"}\n", "f.yaml:1:14: description is missing"},
		{"no stages", described, "f.yaml: a path has two stages at least, this one has 0"},
		{"one stage", first, "f.yaml:3:1: a path has two stages at least, this one has 1"},
		{"no version", first + "- {gate: on}\n", "f.yaml:4:4: stage 2: kubernetes is missing (expected a version such as 1.36)"},
		{"unknown version", first + "- kubernetes: \"9.99\"\n", `f.yaml:4:3: stage 2: Kubernetes version "9.99" is not one of those that can be run here`},
		{"unknown gate", first + "- {kubernetes: \"1.37\", gate: ajar}\n", `f.yaml:4:4: stage 2: gate "ajar" is not one of on, off, default`},
		{"two gate states", first + "- {kubernetes: \"1.37\", gate: both}\n", `f.yaml:4:4: stage 2: gate "both" is not one of on, off, default`},
		{"a gate that there is not", first + "- {kubernetes: \"1.34\", gate: off}\n", "f.yaml:4:4: stage 2: Kubernetes 1.34."},
		{"no change", first + "- {kubernetes: \"1.36\", make: [bob]}\n", "f.yaml:4:4: stage 2: 1.36 is what stage 1 is: a stage has to change something"},
		{"the default by its name", first + "- {kubernetes: \"1.36\", gate: default}\n", "f.yaml:4:4: stage 2: 1.36 is what stage 1 is"},
		{"unknown chain", first + "- {kubernetes: \"1.36\", chain: moon}\n", `f.yaml:4:4: stage 2: there is no authorizer chain "moon" in fixtures/chains`},
		{"unknown fault", first + "- {kubernetes: \"1.37\", fault: flood}\n", `f.yaml:4:4: stage 2: fault "flood" is not one of [kill-apiserver restart-etcd webhook-down]`},
		{"a fault on the first stage", described + "stages:\n- {kubernetes: \"1.36\", fault: restart-etcd}\n- {kubernetes: \"1.37\"}\n", "f.yaml:3:4: stage 1: the fault restart-etcd needs a stage before it"},
		{"a new etcd for two", described + "highAvailability: true\nstages:\n- {kubernetes: \"1.36\"}\n- {kubernetes: \"1.36\", fault: restart-etcd}\n", "f.yaml:5:4: stage 2: the fault restart-etcd is for one API server"},
		{"too far apart", described + "highAvailability: true\nstages:\n- {kubernetes: \"1.35\"}\n- {kubernetes: \"1.37\"}\n", "f.yaml:5:4: stage 2: from 1.35 to 1.37 in one step"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Load("f.yaml", []byte(c.text), Options{}); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// A fault is a change.
func TestLoadFaultAlone(t *testing.T) {
	for _, fault := range []Fault{KillAPIServer, RestartEtcd} {
		text := described + "stages:\n- {kubernetes: \"1.36\"}\n- {kubernetes: \"1.36\", fault: " + string(fault) + "}\n"
		if _, err := Load("f.yaml", []byte(text), Options{}); err != nil {
			t.Error(err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, stages := range []string{
		"stages:\n- {kubernetes: \"1.36\"}\n- {kubernetes: \"1.37\", emulate: \"1.36\", gate: on, chain: abac, fault: kill-apiserver, make: [bob]}\n",
		"stages:\n- {kubernetes: \"1.36\", fault: restart-etcd}\n", "stages: &l\n- *l\n", "highAvailability: true\nstages: [{kubernetes: \"1.33\"}, {kubernetes: \"1.37\"}]\n",
	} {
		f.Add([]byte(described + stages))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Load("f.yaml", data, Options{})
		if err != nil {
			for _, line := range strings.Split(err.Error(), "\n") {
				if !strings.HasPrefix(line, "f.yaml:") {
					t.Errorf("no file in %q of %q", line, err)
				}
			}
			return
		}
		if targets, err := p.Targets(matrix.Matrix{}); err != nil || len(targets) != len(p.Stages) {
			t.Fatalf("accepted, but there are no targets: %v", err)
		}
		if strings.TrimSpace(p.Description) == "" || len(p.Stages) < 2 || p.Stages[0].Fault != "" {
			t.Errorf("accepted %+v", p)
		}
	})
}
