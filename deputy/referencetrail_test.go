package deputy

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/authzconf/authzconf/deputy/reference"
)

// rowFaults are the faults of a row of the reference deputy, each with how it is made and what finds it.
var rowFaults = map[string]struct {
	change func(*reference.Row)
	finds  string
}{
	"right":                   {func(*reference.Row) {}, ""},
	"another actor":           {func(row *reference.Row) { row.Actor = "carol@corp" }, `delete a pod: "carol@corp" (line 2: `},
	"another cluster":         {func(row *reference.Row) { row.Cluster = "elsewhere" }, `delete a pod: "elsewhere" (line 2: `},
	"no cluster":              {func(row *reference.Row) { row.Cluster = "" }, `delete a pod: "" (line 2: `},
	"another verb":            {func(row *reference.Row) { row.Verb = "get" }, `delete a pod: "get" (line 2: `},
	"the method for the verb": {func(row *reference.Row) { row.Verb = row.Method }, `list pods: "GET" (line 1: `},
	"another resource":        {func(row *reference.Row) { row.Resource = "secrets" }, `evict a pod: "secrets" (line 4: `},
	"no subresource": {
		func(row *reference.Row) { row.Resource, _, _ = strings.Cut(row.Resource, "/") },
		`evict a pod: "pods" (line 4: `,
	},
	"another namespace":        {func(row *reference.Row) { row.Namespace = "default" }, `restart a deployment: "default" (line 5: `},
	"another name":             {func(row *reference.Row) { row.Name += "-0" }, `restart a deployment: "web-0" (line 5: `},
	"no correlation ID":        {func(row *reference.Row) { row.Correlation = "" }, "delete a pod: no row"},
	"another's correlation ID": {func(row *reference.Row) { row.Correlation += "0" }, "a row of no request: line 2: "},
}

// TestReferenceTrail compares the audit log of the reference deputy with the API server's, row by row, as --trail does
// for a dashboard's. Right rows have to pass, and each row that is wrong in one way has to be found.
func TestReferenceTrail(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	ctx := context.Background()
	p := newTestDashboardPlan(t, "testdata/reference.yaml", nil, "alice@corp", "bob@corp")
	behind, err := startPlaneFor(ctx, target(t), dashboardServiceAccount(), p.grants(false), p.objects())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = behind.Stop() })
	for _, name := range slices.Sorted(maps.Keys(rowFaults)) {
		fault := rowFaults[name]
		t.Run(name, func(t *testing.T) {
			trail := filepath.Join(t.TempDir(), "trail")
			log := &rowWriter{path: trail, change: fault.change}
			if err := os.WriteFile(trail, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			handler, err := reference.New(reference.Options{
				Target: behind.url, Cluster: localCluster, Transport: behind.transport, Token: behind.token, DefaultTier: "read",
				Session: func(r *http.Request) (reference.User, bool) {
					who := r.Header.Get(sessionHeader)
					return reference.User{Subject: who}, who != ""
				},
				Audit: log.write,
			})
			if err != nil {
				t.Fatal(err)
			}
			ep, err := behind.serve(ctx, handler, p.options.proxy.People)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ep.close() }()
			e, err := p.sendRequests(
				ctx,
				ep,
				&trailReader{log: &growingLog{source: "trail", path: trail}, format: p.file.Trail},
				dashboardAccount,
			)
			if err != nil {
				t.Fatal(err)
			}
			found := judgeDashboard(t, p, e)
			isFound := slices.ContainsFunc(found, func(text string) bool { return strings.Contains(text, fault.finds) })
			isRight := isFound
			if fault.finds == "" {
				isRight = len(found) == 0
			}
			if !isRight {
				t.Errorf("found\n%s\nwant %q", strings.Join(found, "\n"), fault.finds)
			}
		})
	}
}

// rowWriter appends rows to a file, one a line, after a change.
type rowWriter struct {
	path   string
	change func(*reference.Row)
	mu     sync.Mutex
}

func (w *rowWriter) write(row reference.Row) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.change(&row)
	line, err := json.Marshal(row)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(w.path, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = file.Write(append(line, '\n'))
	return err
}
