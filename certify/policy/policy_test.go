package policy_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// all is read once for all tests.
var all = sync.OnceValues(func() (*scenarios.Set, error) { return scenarios.Load(scenarios.FS, fixtures.FS) })

func load(t *testing.T, seed int64) *policy.Policy {
	t.Helper()
	set, err := all()
	if err != nil {
		t.Fatal(err)
	}
	return policy.New(policy.Bound(set.All(), seed), seed)
}

func TestSeedDecidesTheBytes(t *testing.T) {
	policies := []*policy.Policy{load(t, 1), load(t, 1), load(t, 2)}
	for _, format := range policy.Formats() {
		var out [3]map[string][]byte
		for i, p := range policies {
			files, err := p.Export(format)
			if err != nil {
				t.Fatal(err)
			}
			out[i] = files
		}
		if !maps.EqualFunc(out[0], out[1], bytes.Equal) {
			t.Errorf("%s: the same seed gives other bytes", format)
		}
		if maps.EqualFunc(out[0], out[2], bytes.Equal) {
			t.Errorf("%s: another seed gives the same bytes", format)
		}
	}
}

// TestRBACMeansTheSame reads the exported roles and bindings back and compares them with the policy.
func TestRBACMeansTheSame(t *testing.T) {
	p := load(t, 1)
	raw, err := p.RBAC()
	if err != nil {
		t.Fatal(err)
	}
	var objects []map[string]any
	for _, doc := range strings.Split(string(raw), "---\n")[1:] {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	back := scenarios.RulesFromManifests(objects)
	if len(back) != len(p.Grants) {
		t.Fatalf("%d grants became %d", len(p.Grants), len(back))
	}
	for i := range back {
		want, _ := json.Marshal(p.Grants[i])
		got, _ := json.Marshal(back[i])
		if !reflect.DeepEqual(string(want), string(got)) {
			t.Errorf("grant %d: %s became %s", i, want, got)
		}
	}
}

// TestIdentitiesDoNotCollide compares two seeds. An identity that both have must be one that every cluster has.
func TestIdentitiesDoNotCollide(t *testing.T) {
	first := map[scenarios.Subject]bool{}
	namespaces := map[string]bool{}
	for _, g := range load(t, 1).Grants {
		first[g.Subject], namespaces[g.Namespace] = true, true
	}
	for _, g := range load(t, 2).Grants {
		if first[g.Subject] &&
			(g.Subject.User != "" && g.Subject.User != "*" ||
				namespaces[g.Namespace]) { // groups of every cluster, and *, have something in namespaces of no cluster
			t.Errorf("%+v is granted something under two seeds", g.Subject)
		}
	}
}
