package server

import (
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// surface is what an API server offers, and what it has stored.
type surface struct {
	// openAPI has every type and field: the index of its documents, which are named with the digest of their content.
	openAPI string
	// discovery has every API group, version, resource and verb.
	discovery string
	// help has the HELP texts of all metrics, by their names.
	help map[string]string
	// sizes are those of the objects in etcd, by their keys.
	sizes map[string]int
}

const aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// readSurface reads everything about a server that enabling a feature could add, after an impersonation.
func readSurface(t *testing.T, s *Server) surface {
	t.Helper()
	impersonate(t, s)
	out := surface{
		openAPI:   readPath(t, s, "/openapi/v3", "application/json"),
		discovery: readPath(t, s, "/api", aggregatedDiscovery) + readPath(t, s, "/apis", aggregatedDiscovery),
		help:      map[string]string{},
	}
	for _, m := range regexp.MustCompile(`(?m)^# HELP (\S+) (.*)$`).FindAllStringSubmatch(readPath(t, s, "/metrics", "text/plain"), -1) {
		out.help[m[1]] = m[2]
	}
	storage, err := s.Storage()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = storage.Close() }()
	if out.sizes, err = storage.Sizes(t.Context()); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(out.sizes, func(key string, _ int) bool { return renewsItself.MatchString(key) })
	return out
}

// renewsItself matches the keys of objects that an API server writes again all the time, or when it starts.
var renewsItself = regexp.MustCompile(`^/registry/(leases|masterleases|events|ranges|peerserverleases)/|compact_rev_key`)

// impersonate sends a request as somebody else, so that the server counts an impersonation.
func impersonate(t *testing.T, s *Server) {
	t.Helper()
	readPath(t, s, "/version", "application/json", "Impersonate-User", "bob")
}

// readPath returns the body of the answer to a GET as administrator, sent with further headers, each behind
// its name.
func readPath(t *testing.T, s *Server, path, accept string, headers ...string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	resp, err := s.adminHTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v", path, resp.Status, err)
	}
	return string(body)
}

// TestSurfaceOfTheGate: enabling the gate, and disabling it again, adds no API type, field or object, makes none larger and
// deprecates no metric. It adds the four metrics of impersonation, and disabling it takes them away.
func TestSurfaceOfTheGate(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	release := local.Newest()
	options := func(gate scenarios.Gate) Options {
		return Options{
			Cell:    verdicts.Cell{Name: "surface", Provider: Local, Kubernetes: release.Version, Gate: gate},
			Release: release, Binaries: &local.Binaries{},
		}
	}
	s, err := Start(t.Context(), options(scenarios.GateOff))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	off := readSurface(t, s)
	if len(off.sizes) < 20 || len(off.help) < 100 || !strings.Contains(off.discovery, "pods") {
		t.Fatalf("expected the surface of a whole API server, got %d objects and %d metrics", len(off.sizes), len(off.help))
	}
	for _, gate := range []scenarios.Gate{scenarios.GateOn, scenarios.GateOff} {
		if err := s.Restart(t.Context(), options(gate)); err != nil {
			t.Fatal(err)
		}
		compareSurfaces(t, gate, off, readSurface(t, s))
	}
}

// impersonationMetrics returns the names of the metrics of impersonation, sorted.
func (s surface) impersonationMetrics() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.help)) {
		if strings.HasPrefix(name, impersonationPrefix) {
			names = append(names, name)
		}
	}
	return names
}

// compareSurfaces reports an error for every difference of a surface from the one before, but for the metrics that a state of
// the gate has.
func compareSurfaces(t *testing.T, gate scenarios.Gate, before, now surface) {
	t.Helper()
	if before.openAPI != now.openAPI {
		t.Errorf("gate %s: types or fields differ:\n%s", gate, cmp.Diff(before.openAPI, now.openAPI))
	}
	if before.discovery != now.discovery {
		t.Errorf("gate %s: resources differ:\n%s", gate, cmp.Diff(before.discovery, now.discovery))
	}
	if diff := cmp.Diff(before.sizes, now.sizes); diff != "" {
		t.Errorf("gate %s: objects in etcd differ:\n%s", gate, diff)
	}
	for _, name := range slices.Sorted(maps.Keys(before.help)) {
		if help, ok := now.help[name]; ok && help != before.help[name] {
			t.Errorf("gate %s: %s has another help text (a metric that is deprecated says so there): %s", gate, name, help)
		}
	}
	var want []string
	if gate == scenarios.GateOn {
		want = slices.Sorted(slices.Values(known.Impersonation))
	}
	if got := now.impersonationMetrics(); !slices.Equal(got, want) {
		t.Errorf("gate %s: the metrics of impersonation are %q, want %q", gate, got, want)
	}
	t.Logf("gate %s: %d objects of %d bytes, %d metrics", gate, len(now.sizes), sumOf(now.sizes), len(now.help))
}

// sumOf returns the sum of sizes.
func sumOf(sizes map[string]int) (sum int) {
	for _, n := range sizes {
		sum += n
	}
	return sum
}
