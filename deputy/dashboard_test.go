package deputy

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/deputy/dashboard"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports/record"
)

const dashboardFile = "testdata/dashboard.yaml"

// dashboardOptions returns the plan of the small dashboard's requests, to be tried on a control plane of ours.
func dashboardOptions(t *testing.T) *dashboardPlan {
	t.Helper()
	return newTestDashboardPlan(t, dashboardFile, nil, "alice@corp[periscope-tier:triage]", "bob@corp")
}

// newTestDashboardPlan returns the plan of the requests in a file, for one cluster or two. people have sessions, and
// their groups are in brackets.
func newTestDashboardPlan(t *testing.T, file string, clusters []string, people ...string) *dashboardPlan {
	t.Helper()
	proxy := &Proxy{URL: "http://127.0.0.1:1", Command: "true", Requests: file, Trail: "trail", Timeout: timeout}
	for _, who := range people {
		name, _, _ := strings.Cut(who, "[")
		proxy.Identities = append(proxy.Identities, who+"=header:"+sessionHeader+": "+name)
	}
	if err := proxy.check(clusters, true); err != nil {
		t.Fatal(err)
	}
	p, err := newDashboardPlan(
		options{proxy: proxy, clusters: clusters, impersonation: []string{legacy}},
		product.NewInvocation(nil, "test", os.Stderr),
	)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPeriscopeRequests checks that the file for Periscope can be read, and has a case for each request and one for the
// trail.
func TestPeriscopeRequests(t *testing.T) {
	p := newTestDashboardPlan(t, "testdata/periscope.yaml", nil, "alice@corp[periscope-tier:write]", "bob@corp[periscope-tier:read]")
	if n := len(p.Cases()); n != 10 {
		t.Errorf("%d cases, want 10", n)
	}
}

// dashboardFaults are the faults of small dashboards, each with the finding that it must lead to.
var dashboardFaults = map[string]string{
	"":                                   "",
	"takes another name":                 "delete a pod: delete pods web-0 in shop as alice@corp",
	"takes another namespace":            "delete a pod: delete pods web in default as alice@corp",
	"does not ask":                       "delete a pod: there is none",
	"asks afterwards":                    "delete a pod: there is none before it: the first comes after",
	"asks about another verb":            `delete a pod: there is none about that: the last of 1 (access) asks about "get pods web in shop"`,
	"asks as itself":                     `the same by somebody who may not: the review was made as "system:serviceaccount:dashboards:dashboard"`,
	"acts as itself":                     "the pods of a namespace: it was made as the dashboard itself",
	"acts as the person before":          `the same by somebody who may not: it was made as "alice@corp"`,
	"forgets the groups":                 `the pods of a namespace: it was made as "alice@corp" without the group "periscope-tier:triage"`,
	"reads as itself":                    "the pods of a namespace: list secrets in shop as the dashboard itself",
	"shows the editor without asking":    `open the edit page of a ConfigMap, by somebody who may only read: there is none about that: the last of`,
	"tries the edit to find out":         "by somebody who may only read: patch configmaps settings in shop as bob@corp",
	"asks about the editor of everybody": `open the edit page of a ConfigMap, by somebody who may only read: the review was made as "system:serviceaccount:dashboards:dashboard"`,
	"answers checks by itself":           "ask what the edit page needs in one request, by somebody who may only read: there is none about that: the last of",
	"asks for the rules elsewhere":       "ask what the edit page needs in one request, by somebody who may only read: there is none about that: the last of",
	"acts twice":                         "delete a pod: delete secrets web in shop as alice@corp",
	"lets nobody in":                     "delete a pod without a session: delete pods web in shop as the dashboard itself",
	"writes no row":                      "delete a pod: no row",
	"writes another's row":               `delete a pod: "bob@corp" (line`,
	"writes another cluster":             `delete a pod: "elsewhere" (line`,
	"writes another verb":                `delete a pod: "get" (line`,
	"writes another name":                `delete a pod: "web-0" (line`,
	"writes no correlation":              "a row of no request: line 1: alice@corp: delete pods web in shop",
	"writes rows twice":                  "delete a pod: line 1: alice@corp: delete pods web in shop; line 2:",
}

// TestDashboards sends the requests of the file to a small dashboard that is right, which has to pass, and to ones that
// are wrong in one way each.
func TestDashboards(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	t.Parallel() // it mostly waits
	ctx := context.Background()
	p := dashboardOptions(t)
	behind, err := startPlaneFor(ctx, target(t), dashboardServiceAccount(), p.grants(false), p.objects())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = behind.Stop() })
	config := behind.Anonymous()
	config.BearerToken = behind.token
	for _, fault := range slices.Sorted(maps.Keys(dashboardFaults)) {
		t.Run("it "+fault, func(t *testing.T) {
			tryDashboard(ctx, t, p, []*plane{behind}, &smallDashboard{config: config, fault: fault}, dashboardFaults[fault])
		})
	}
}

// twoClusterFaults are the faults of small dashboards in front of two clusters, each with the finding that it must lead
// to.
var twoClusterFaults = map[string]string{
	"":                          "",
	"acts at the first cluster": "the pods of the west: list pods in shop of the cluster east as alice@corp",
	"acts at every cluster":     "delete a pod of the east: delete pods web in shop of the cluster west as alice@corp",
	"asks at the first cluster": "delete the pod of that name in the west: there is none at that cluster: another one was asked",
	"writes another cluster":    `delete a pod of the east: "elsewhere" (line`,
}

// TestDashboardTwoClusters sends the requests of a file about two clusters to a small dashboard that is right, and to
// ones that confuse the clusters in one way each.
func TestDashboardTwoClusters(t *testing.T) {
	sample.InTurn(t, 0, 3)
	if testing.Short() {
		t.Skip("starts two control planes")
	}
	ctx := context.Background()
	p := newTestDashboardPlan(t, "testdata/twoclusters.yaml", tunnelledClusters, "alice@corp[periscope-tier:triage]", "bob@corp")
	var planes []*plane
	var configs []*rest.Config
	for range tunnelledClusters {
		behind, err := startPlaneFor(ctx, target(t), dashboardServiceAccount(), p.grants(false), p.objects())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = behind.Stop() })
		config := behind.Anonymous()
		config.BearerToken = behind.token
		planes, configs = append(planes, behind), append(configs, config)
	}
	for _, fault := range slices.Sorted(maps.Keys(twoClusterFaults)) {
		t.Run("it "+fault, func(t *testing.T) {
			d := &smallDashboard{config: configs[0], others: map[string]*rest.Config{"east": configs[0], "west": configs[1]}, fault: fault}
			tryDashboard(ctx, t, p, planes, d, twoClusterFaults[fault])
		})
	}
}

// tryDashboard sends the requests of a plan to a dashboard. want is what has to be found; if it is empty, nothing may
// be found.
func tryDashboard(ctx context.Context, t *testing.T, p *dashboardPlan, planes []*plane, d *smallDashboard, want string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "trail"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	d.trail = file
	ep, err := planes[0].serve(ctx, d, p.options.proxy.People)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ep.close() }()
	if len(planes) > 1 {
		ep.other = &secondCluster{name: tunnelledClusters[1]}
		ep.useLogs(planes)
	}
	e, err := p.sendRequests(
		ctx,
		ep,
		&trailReader{log: &growingLog{source: "trail", path: file.Name()}, format: p.file.Trail},
		dashboardAccount,
	)
	if err != nil {
		t.Fatal(err)
	}
	found := judgeDashboard(t, p, e)
	isFound := slices.ContainsFunc(found, func(text string) bool { return strings.Contains(text, want) })
	if isRight := want == ""; isRight && len(found) > 0 ||
		!isRight && !isFound {
		t.Errorf("found\n%s\nwant %q", strings.Join(found, "\n"), want)
	}
}

// judgeDashboard returns the findings in evidence, each with its subject.
func judgeDashboard(t *testing.T, p *dashboardPlan, e *dashboard.Evidence) (found []string) {
	t.Helper()
	log := record.New()
	if err := log.Append(dashboardKey(legacy), e); err != nil {
		t.Fatal(err)
	}
	for _, c := range p.cases {
		r := p.Judge(c.ID, log.View())
		if len(r.Differences) == 0 && r.Reason != "" {
			found = append(found, r.Reason)
		}
		for _, d := range r.Differences {
			found = append(found, fmt.Sprintf("%s: %s", d.Field, d.Got))
		}
	}
	return found
}
