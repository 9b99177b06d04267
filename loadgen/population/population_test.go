package population

import (
	"net/http"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/loadgen/profile"
)

func TestAsker(t *testing.T) {
	p, err := profile.Load("steady", nil)
	if err != nil {
		t.Fatal(err)
	}
	tokens := func(i int) []string { return []string{"a" + agentName(i), "b" + agentName(i)} }
	for _, c := range []struct {
		variant            string
		agent, kind, turn  int
		url, as, authority string
	}{
		{"none", 3, 0, 0, "/api/v1/pods?fieldSelector=spec.nodeName%3Dstorm-000003&resourceVersion=0", "", "Bearer aagent-000003"},
		{"legacy-gate-on", 3, 1, 31, "/api/v1/namespaces/storm-pods/pods/pod-000003-001?", "system:node:storm-000003", "Bearer bagent-000003"},
		{"associated-node", 3, 2, 2, "/api/v1/pods?fieldSelector=spec.nodeName%3Dstorm-000003&resourceVersion=0&timeoutSeconds=300&watch=true", "system:node:storm-000003", "Bearer aagent-000003"},
		{"arbitrary-node", 239, 0, 0, "/api/v1/pods?fieldSelector=spec.nodeName%3Dstorm-000240&resourceVersion=0", "system:node:storm-000240", "Bearer aagent-000239"},
		{"deputy", 7, 0, 0, "/api/v1/pods?fieldSelector=spec.nodeName%3Dstorm-000007&resourceVersion=0", "user-000007", "Bearer aagent-000007"},
	} {
		variant, err := profile.VariantNamed(c.variant)
		if err != nil {
			t.Fatal(err)
		}
		r := Asker(p, variant, tokens)(c.agent, c.kind, c.turn)
		if got := r.Path + "?" + r.Query; got != c.url || r.Header.Get("Impersonate-User") != c.as ||
			r.Header.Get("Authorization") != c.authority ||
			r.Watch != (c.kind == 2) {
			t.Errorf("%s: %s as %q with %s", c.variant, got, r.Header.Get("Impersonate-User"), r.Header.Get("Authorization"))
		}
		if c.variant == "deputy" &&
			(r.Header.Get("Impersonate-Extra-Authzconf.dev%2ftenant") != "tenant-0-7" || len(r.Header["Impersonate-Group"]) != 2) {
			t.Errorf("headers of a deputy: %v", strings.Join(keys(r.Header), " "))
		}
	}
}

func keys(h http.Header) (all []string) {
	for k := range h {
		all = append(all, k)
	}
	return all
}
