package advice_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

var update = flag.Bool("update", false, "write the table of profiles in docs/advise.md")

// TestProfiles compares each profile with the model. The advised grants must allow in a constrained mode what that mode
// serves, and must not allow what is blocked. The product's own legacy grants must allow what they are said to allow.
// The table in the documentation is made from the results.
func TestProfiles(t *testing.T) {
	profiles, err := advice.Profiles()
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString(
		"| profile | product | sends | legacy grant | constrained mode | what blocks it, and what would do |\n|---|---|---|---|---|---|\n",
	)
	for _, p := range profiles {
		if p.Product == "" || p.Date == "" || p.Requestor == "" || len(p.Sources) == 0 || len(p.Legacy) == 0 || len(p.Sends) == 0 {
			t.Errorf("%s: something is not stated: %+v", p.Name, p)
		}
		for _, s := range p.Sources {
			if len(s.Commit) != 40 || s.Path == "" || s.Says == "" || strings.Count(s.Repository, "/") != 1 {
				t.Errorf("%s: %+v is not a place that can be looked up", p.Name, s)
			}
		}
		summary, kinds, err := p.Summary()
		if err != nil {
			t.Fatal(err)
		}
		a := summary.Advice()
		wrong, err := check(a.Grants, summary.Seen(), nil)
		if err != nil || len(wrong) > 0 {
			t.Errorf("%s: %v %v", p.Name, wrong, err)
		}
		for _, s := range summary.Seen() {
			expectDecision(t, p.Name, s, a.Grants, s.Mode != "")
			if isAllowed, isSent := legacyOf(kinds, s.As); isSent {
				expectDecision(t, p.Name, s, p.Legacy, isAllowed)
			}
		}
		for i, k := range kinds {
			row := []string{"", "", "", "", string(k.Mode), describeKind(k)}
			if i == 0 {
				row[0], row[1] = "`"+p.Name+"`", p.Product
				for j, g := range p.Legacy {
					row[3] += strings.Repeat("; ", min(j, 1)) + strings.Join(g.Verbs, ", ") + " on " + strings.Join(g.Resources, ", ")
					if len(g.Names) > 0 {
						row[3] += " by name"
					}
				}
				row[3] = "`" + row[3] + "`"
			}
			row[2] = "a " + map[bool]string{true: "service account", false: "user"}[strings.HasPrefix(k.As.User, "system:serviceaccount:")]
			for _, part := range []struct {
				has  bool
				text string
			}{{len(k.As.Groups) > 0, ", groups"}, {len(k.As.Extra) > 0, ", extra"}, {k.When != "", ": " + k.When}} {
				if part.has {
					row[2] += part.text
				}
			}
			if !k.Legacy {
				row[5] += "; its own legacy grant does not allow it either"
			}
			fmt.Fprintf(&table, "| %s |\n", strings.Join(row, " | "))
		}
	}
	golden(t, "../docs/advise.md", table.String())
}

// expectDecision checks whether a server with only these grants allows an impersonation.
func expectDecision(t *testing.T, profile string, s advice.ObservedImpersonation, grants []scenarios.Grant, isAllowed bool) {
	t.Helper()
	server, err := oracle.New(oracle.Config{Kubernetes: "1.37", Gate: scenarios.GateOn, Grants: grants})
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(server, s); (got.User != nil) != isAllowed {
		t.Errorf("%s: %s: allowed %v, expected %v by %v", profile, s, got.User != nil, isAllowed, grants)
	}
}

// describeKind returns what blocks a kind of impersonation, and what would serve in its place.
func describeKind(k advice.JudgedImpersonation) string {
	switch {
	case k.Instead == "":
		return k.Blocked
	case k.Blocked == "":
		return k.Instead
	}
	return k.Blocked + "; instead: " + k.Instead
}

// legacyOf returns whether the product's own legacy grants allow an impersonation, if the product sends it.
func legacyOf(kinds []advice.JudgedImpersonation, as scenarios.Impersonate) (isAllowed, isSent bool) {
	for _, k := range kinds {
		if fmt.Sprint(k.As) == fmt.Sprint(as) {
			return k.Legacy, true
		}
	}
	return false, false
}

// golden compares the part of a page between its marks with a text.
func golden(t *testing.T, page, want string) {
	t.Helper()
	const from, to = "<!-- made by go test ./advice -update -->\n", "<!-- end of made -->"
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), from)
	have, after, closed := strings.Cut(rest, to)
	switch {
	case !ok || !closed:
		t.Fatalf("%s has no place for the table", page)
	case *update:
		if err := os.WriteFile(page, []byte(before+from+want+to+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case have != want:
		t.Errorf("%s is stale: go test ./advice -run TestProfiles -update", page)
	}
}
