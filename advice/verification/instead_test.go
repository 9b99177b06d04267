package verification

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/conformance/matrix/matrixtest"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// redundantHeaders are impersonations with a header that the API server does not need, each by a requestor of its own.
var redundantHeaders = []scenarios.Impersonate{
	{User: "system:node:node-1", Groups: []string{"system:nodes"}},
	{User: "system:node:node-2", Groups: []string{"system:nodes", "system:nodes", "system:authenticated"}},
	{User: "system:serviceaccount:ci:bot", Groups: []string{"system:serviceaccounts:ci", "system:serviceaccounts"}},
	{User: "alice", Groups: []string{"system:authenticated", "dev"}},
	{User: "bob", Groups: []string{"dev", "ops", "dev"}},
}

// TestInstead sends impersonations with a redundant header to a kube-apiserver on which everybody may impersonate in
// the legacy way. It makes advice from the audit log, and sends the advised requests to another kube-apiserver that has
// only the advised permissions. The resulting users must be the same.
func TestInstead(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	ctx := context.Background()
	cells := matrixtest.NewestCells(t, scenarios.GateOn)
	summary, err := advice.NewSummary(advice.Options{})
	if err != nil {
		t.Fatal(err)
	}
	users := sendByLegacy(ctx, t, cells[0], summary)
	made := summary.Advice()
	if n := len(made.Kept) + len(made.Redundant); n != len(redundantHeaders) {
		t.Errorf("another request is advised for %d of %d: %+v", n, len(redundantHeaders), made)
	}
	manifests, err := advice.Manifests(advice.RBAC(made.Grants))
	if err != nil {
		t.Fatal(err)
	}
	seen := summary.Seen()
	result, err := Run(ctx, Options{Target: cells[0], Manifests: manifests, Seen: seen, Progress: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	for _, s := range seen {
		if s.Mode == "" {
			continue
		}
		served++ // Run has checked that the API server makes exactly this user of it
		got, want := oracle.Resulting(s.Mode, &s.As), users[s.As.User]
		if !sets.New(got.Groups...).Equal(sets.New(want.Groups...)) || got.Name != want.Username {
			t.Errorf("%v becomes %+v, and by legacy %+v", s.As, got, want)
		}
	}
	if len(result.Wrong) > 0 || result.Allowed != served || served < len(redundantHeaders) {
		t.Errorf("%d of %d allowed: %q", result.Allowed, served, result.Wrong)
	}
}

// sendByLegacy sends the impersonations to a control plane of their own, and adds their events to a summary. It returns
// the resulting users by their names.
func sendByLegacy(ctx context.Context, t *testing.T, cell server.Options, summary *advice.Summary) map[string]authenticationv1.UserInfo {
	t.Helper()
	target, err := server.Start(ctx, cell)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := target.Stop(); err != nil {
			t.Error(err)
		}
	}()
	replayer, err := replay.New(target)
	if err != nil {
		t.Fatal(err)
	}
	const requestor = "d"
	everything := scenarios.Grant{
		Subject:   scenarios.Subject{User: requestor},
		Verbs:     []string{"impersonate"},
		APIGroups: []string{""},
		Resources: []string{"users", "groups", "serviceaccounts"},
	}
	if _, err := replayer.Provision(ctx, &scenarios.Scenario{ID: "legacy", Grants: []scenarios.Grant{everything}}); err != nil {
		t.Fatal(err)
	}
	sender, users := &run{target: target}, map[string]authenticationv1.UserInfo{}
	for _, as := range redundantHeaders {
		e, code, err := sender.send(
			ctx,
			advice.ObservedImpersonation{
				Requestor: scenarios.User{Name: requestor},
				As:        as,
				Action:    advice.Action{Verb: "get", Path: "/version"},
			},
		)
		if err != nil || e.ImpersonatedUser == nil {
			t.Fatalf("%v: code %d, %+v, %v", as, code, e, err)
		}
		if err := summary.Add(e, false); err != nil {
			t.Fatal(err)
		}
		users[as.User] = *e.ImpersonatedUser
	}
	return users
}
