package reports

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// manyTexts are n scenarios, half of them denied twins of the other half, with
// three to twelve access reviews.
func manyTexts(t testing.TB, n int) Texts {
	t.Helper()
	files := fstest.MapFS{}
	folders := []string{"kep-5284/user-info", "kep-5284/groups", "docs-user-impersonation/extras", "kubernetes/caches"}
	for i := range n / 2 {
		folder := folders[i*len(folders)/(n/2)]
		for _, allowed := range []bool{true, false} {
			id := fmt.Sprintf("%s/impersonation-of-several-groups-%02d", folder, i)
			twin := ""
			if !allowed {
				twin = "twin: " + id + "\n"
				id += "-denied"
			}
			files[id+".yaml"] = &fstest.MapFile{Data: []byte(manyText(twin, i%8))}
		}
	}
	texts := Texts{Scenarios: files, Fixtures: fstest.MapFS{"none.yaml": {}}}
	var err error
	if texts.Set, err = scenarios.Load(texts.Scenarios, texts.Fixtures); err != nil {
		t.Fatal(err)
	}
	return texts
}

func manyText(twin string, groups int) string {
	b := &strings.Builder{}
	verbs := `"impersonate:user-info", "impersonate-on:user-info:list"`
	if twin != "" {
		verbs = `"impersonate:user-info"`
	}
	fmt.Fprintf(b, `description: >-
  The requestor lists pods as bob with %d groups. Each group is a check of its
  own, and the checks come in the order of the headers.
source: {document: KEP-5284, section: "Design Details, user-info"}
level: %s
requires: {kubernetes: ">=1.35", gate: any}
%srequestors:
  impersonator: {user: impersonator, groups: [operators]}
grants:
  - subject: {user: impersonator}
    verbs: [%s]
    apiGroups: ["*"]
    resources: ["*"]
  - subject: {user: bob}
    verbs: [list]
    apiGroups: [""]
    resources: [pods]
steps:
  - request: {by: impersonator, impersonate: {user: bob%s}, verb: list, resource: pods, namespace: default}
    expect:
`, groups, []string{"core", "extended"}[groups%2], twin, verbs, groupHeaders(groups))
	if twin != "" {
		b.WriteString(`      outcome: impersonationForbidden
      code: 403
      message: 'pods is forbidden: User "impersonator" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "default"'
      reviews:
        - {verb: "impersonate-on:user-info:list", version: v1, resource: pods, namespace: default, decision: noOpinion}
        - {verb: impersonate, version: v1, resource: users, name: bob, decision: noOpinion}
      audit: {impersonatedUser: false, constraint: "", decision: ""}
`)
		return b.String()
	}
	b.WriteString(`      outcome: allowed
      code: 200
      reviews:
        - {verb: "impersonate-on:user-info:list", version: v1, resource: pods, namespace: default, decision: allow}
        - {verb: "impersonate:user-info", group: authentication.k8s.io, version: v1, resource: users, name: bob, decision: allow}
`)
	for g := range groups {
		fmt.Fprintf(b, "        - {verb: \"impersonate:user-info\", group: authentication.k8s.io, version: v1, resource: groups, name: team-%d, decision: allow}\n", g)
	}
	b.WriteString(`        - {by: impersonated, verb: list, version: v1, resource: pods, namespace: default, decision: allow}
      audit: {impersonatedUser: true, constraint: "impersonate:user-info", decision: allow}
`)
	return b.String()
}

func groupHeaders(n int) string {
	if n == 0 {
		return ""
	}
	var names []string
	for g := range n {
		names = append(names, fmt.Sprintf("team-%d", g))
	}
	return ", groups: [" + strings.Join(names, ", ") + "]"
}

// manyCells are n cells of the gate on.
func manyCells(n int) []Cell {
	var cells []Cell
	for i := range n {
		c := gateCell(scenarios.GateOn)
		if i%2 == 1 {
			c = gateCell(scenarios.GateOff)
		}
		c.Name = strings.Replace(c.Name, "1.37", fmt.Sprintf("1.%d", 37-i/2), 1)
		cells = append(cells, c)
	}
	return cells
}

// The page has to open at once, so what comes before the packs is bounded, and the whole, too.
func TestPageSize(t *testing.T) {
	for _, c := range []struct {
		scenarios, cells, plain, limit int
		fails                          bool
	}{{350, 7, 4e5, 6e5, false}, {150, 12, 4e5, 6e5, false}, {200, 2, 8e5, 9e5, true}} {
		texts := manyTexts(t, c.scenarios)
		r, evidence := testRun(t, texts, manyCells(c.cells), func(e *verdicts.Evidence) {
			if c.fails {
				e.Steps[0].Response.Code = 500
			}
		})
		r.Complete(texts.Set, evidence, nil)
		page, err := renderHTML(newPage(r, evidence, texts.Set))
		if err != nil {
			t.Fatal(err)
		}
		plain := bytes.Index(page, []byte(`<script type="application/gzip">`))
		t.Logf("%d scenarios on %d cells: %d bytes, %d of them plain", c.scenarios, c.cells, len(page), plain)
		if plain < 0 || plain > c.plain || len(page) > c.limit {
			t.Errorf("%d scenarios on %d cells: %d bytes, %d of them plain, limits %d and %d", c.scenarios, c.cells, len(page), plain, c.limit, c.plain)
		}
	}
}
