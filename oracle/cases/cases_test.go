package cases_test

import (
	"reflect"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/scenarios"
)

func generate(seed int64, n int) []cases.Case {
	g := cases.New(seed)
	var out []cases.Case
	for range n {
		out = append(out, g.Next())
	}
	return out
}

func TestSameSeedSameCases(t *testing.T) {
	if d := cmp.Diff(generate(7, 800), generate(7, 800)); d != "" {
		t.Errorf("a seed gave two series of cases:\n%s", d)
	}
	if reflect.DeepEqual(generate(7, 20), generate(8, 20)) {
		t.Error("two seeds gave the same cases")
	}
}

// TestEveryPair counts the pairs of levels on its own.
func TestEveryPair(t *testing.T) {
	list := cases.Factors()
	g := cases.New(1)
	seen := map[[4]int]bool{}
	all, needed := 0, 0
	for f := range list {
		for f2 := f + 1; f2 < len(list); f2++ {
			all += len(list[f].Levels) * len(list[f2].Levels)
		}
	}
	for n := 1; n <= 1000 && len(seen) < all; n++ {
		c := g.Next().Choice
		for f := range list {
			for f2 := f + 1; f2 < len(list); f2++ {
				seen[[4]int{f, c[f], f2, c[f2]}] = true
			}
		}
		needed = n
	}
	if covered, total := g.Pairs(); len(seen) != all || covered != all || total != all {
		t.Errorf("%d of %d pairs came up; the generator says %d of %d", len(seen), all, covered, total)
	}
	t.Logf("%d pairs of levels in %d cases", all, needed)
}

// expected fills in what the model predicts.
func expected(t *testing.T, s *scenarios.Scenario) *scenarios.Scenario {
	t.Helper()
	s = cases.WithoutExpectations(s)
	played, err := oracle.Play(s, scenarios.Facts{Kubernetes: "1.37", Binary: "1.37", Gate: scenarios.GateOn}, fixtures.FS)
	if err != nil {
		t.Fatalf("%s: %v", s.ID, err)
	}
	for _, p := range played {
		s.Steps[p.Step].Expect = p.Prediction.Expect()
	}
	s.Requires.Gate = scenarios.GateOn
	return s
}

// TestPrintedCasesLoad holds that a printed case is a scenario file, and the
// same scenario.
func TestPrintedCasesLoad(t *testing.T) {
	files := fstest.MapFS{}
	want := map[string]*scenarios.Scenario{}
	unpaired := 0
	for _, c := range generate(3, 600) {
		s := expected(t, c.Scenario)
		var denied []int
		for i, st := range s.Steps {
			if st.Expect != nil && st.Expect.Outcome != scenarios.Allowed {
				denied = append(denied, i)
			}
		}
		paired, ok := cases.AddTwins(s, denied)
		if !ok {
			unpaired++
			continue // a person has to write the twin
		}
		s = expected(t, paired)
		raw, err := cases.Print(s, "a comment", "another")
		if err != nil {
			t.Fatal(err)
		}
		files[s.ID+".yaml"] = &fstest.MapFile{Data: raw}
		want[s.ID] = s
	}
	set, err := scenarios.Load(files, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	for id, s := range want {
		got, _ := set.Get(id)
		back := *got
		back.File, back.Digest = "", ""
		if d := cmp.Diff(s, &back); d != "" {
			t.Errorf("%s came back otherwise:\n%s", id, d)
		}
	}
	t.Logf("%d files loaded again; %d cases cannot be paired", len(files), unpaired)
}

// TestShrink leaves only what the predicate is about.
func TestShrink(t *testing.T) {
	for _, c := range generate(5, 300) {
		asks := 0
		before := cases.WithoutExpectations(c.Scenario)
		group := func(s *scenarios.Scenario) bool {
			asks++
			return slices.ContainsFunc(s.Steps, func(st scenarios.Step) bool {
				return st.Request != nil && st.Request.Impersonate != nil && slices.Contains(st.Request.Impersonate.Groups, "crew")
			})
		}
		if !group(c.Scenario) {
			continue
		}
		small := cases.Shrink(c.Scenario, 1000, group)
		if !reflect.DeepEqual(before, c.Scenario) {
			t.Fatalf("%s was changed", c.Scenario.ID)
		}
		imp := small.Steps[0].Request.Impersonate
		if len(small.Steps) != 1 || len(small.Grants) != 0 || len(small.Requestors) != 1 || imp.UID != "" || len(imp.Extra) != 0 ||
			!slices.Equal(imp.Groups, []string{"crew"}) || small.Steps[0].Request.Path != "/version" {
			t.Errorf("%s was not made small in %d attempts: %+v", c.Scenario.ID, asks, small)
		}
	}
}

func TestShrinkStops(t *testing.T) {
	asks := 0
	cases.Shrink(generate(1, 1)[0].Scenario, 3, func(*scenarios.Scenario) bool { asks++; return false })
	if asks > 3 {
		t.Errorf("asked %d times, the limit was 3", asks)
	}
}
