package storm

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// TestCheckExisting checks that an error about what is not possible in an existing cluster names the flag that asks for
// it.
func TestCheckExisting(t *testing.T) {
	for want, change := range map[string]func(o *Options){
		"": func(*Options) {},
		"--authorizer webhook: nothing is put into": func(o *Options) { o.Profile.Authorizer.Kind = profile.Webhook },
		"the profile test compares the servers [gate-on gate-off], and a cluster that exists is one": func(o *Options) {
			o.Profile.Comparisons = append(o.Profile.Comparisons, profile.Comparison{A: side("none", profile.GateOffServer), B: side("none", profile.GateOffServer)})
		},
		"the profile test is about the server gate-on, and the cluster has the gate off": func(o *Options) { o.Existing.Cell.Gate = scenarios.GateOff },
		"--starts 2: a cluster that exists is not started anew":                          func(o *Options) { o.Profile.Starts = 2 },
		"--engine kubernetes: expected --image beside it":                                func(o *Options) { o.Engine = Pods },
		"--image is what pods run: expected --engine kubernetes":                         func(o *Options) { o.Image = "x" },
		"the profile test restarts API servers":                                          func(o *Options) { o.Profile.Event.Kind = profile.Restart },
	} {
		p := burst(profile.Comparison{Name: "one", A: side("none", profile.GateOnServer), B: side("denied", profile.GateOnServer)})
		p.Authorizer.Kind, p.Starts = profile.RBAC, 1
		o := Options{
			Profile:  p,
			Shards:   1,
			Provider: server.Existing,
			Existing: server.Options{Cell: verdicts.Cell{Gate: scenarios.GateOn}},
		}
		change(&o)
		if err := o.Check(); want == "" && err != nil ||
			want != "" &&
				(err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestOutOfReach(t *testing.T) {
	for want, c := range map[string]*rest.Config{
		"":                       {Host: "https://10.0.0.1:6443"},
		"has the server http:":   {Host: "http://10.0.0.1"},
		"has the server https:":  {Host: "https://example.com/k8s/clusters/c"},
		"skips the verification": {Host: "https://10.0.0.1", TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		"has a tls-server-name":  {Host: "https://10.0.0.1", TLSClientConfig: rest.TLSClientConfig{ServerName: "x"}},
		"has a proxy-url":        {Host: "https://10.0.0.1", Proxy: http.ProxyFromEnvironment},
	} {
		if got := outOfReach(c); !strings.HasPrefix(got, want) ||
			want == "" && got != "" {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestOthers checks that what others do is subtracted and noted, and that it is a problem if they impersonate.
func TestOthers(t *testing.T) {
	p := burst(profile.Comparison{Name: "one", A: side("none", profile.GateOnServer), B: side("denied", profile.GateOnServer)})
	p.Authorizer.Kind, p.Block = profile.RBAC, 20*time.Second
	r := newRunner(Options{Profile: p, Provider: server.Existing})
	r.idle[profile.GateOnServer] = map[string]run.Cost{}
	n := r.countOthers(profile.GateOnServer, []sample{
		{family: decisions, labels: model.Metric{"decision": "allowed"}, value: 7},
		{family: decisions, labels: model.Metric{"decision": "denied"}, value: 2},
		{family: authorizationAttempts, value: 1},
		{family: cpuSeconds, value: 0.5},
	})
	r.noteOthers(map[profile.Server]int64{profile.GateOnServer: n})
	if r.background[profile.GateOnServer] != 14 || r.idle[profile.GateOnServer][run.APIServer].Idle != run.Duration(time.Second) ||
		len(r.out.Problems) != 1 ||
		!slices.Contains(r.out.Notes, "gate-on allowed 7 checks of others in 10s without agents: 14 are subtracted from those of each block of 20s") {
		t.Errorf("background %v, idle %v, notes %q, problems %v", r.background, r.idle, r.out.Notes, r.out.Problems)
	}
	for _, c := range []struct {
		before, now int64
		first, want bool
	}{{now: 0, first: true, want: true}, {now: 5, first: true}, {before: 100, now: 130, want: true}, {before: 100, now: 160}, {before: 0, now: 9, want: true}, {before: 0, now: 10}, {before: 400, now: 0}} {
		before := map[profile.Server]int64{profile.GateOnServer: c.before}
		if c.first {
			before = nil
		}
		if got := isSteady(before, map[profile.Server]int64{profile.GateOnServer: c.now}); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
	was := counters{"": {family: server.ProcessStartMetric, value: 100}}
	if r.checkReplaced(was, was) != nil || r.checkReplaced(was, counters{"": {family: server.ProcessStartMetric, value: 200}}) == nil {
		t.Error("another process that answers is not told from the same one")
	}
}

// TestSeveral tells one server that answers often from two behind one address. It uses several connections, because a
// balancer keeps its choice.
func TestSeveral(t *testing.T) {
	for name, c := range map[string]struct{ servers, want int }{"one": {1, 1}, "two": {2, 2}, "none that says when it began": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			var connections atomic.Int64
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.servers > 0 {
					_, _ = fmt.Fprintf(
						w,
						"# TYPE %s gauge\n%s %d.25\n",
						server.ProcessStartMetric,
						server.ProcessStartMetric,
						1700000000+connections.Load()%int64(c.servers),
					)
				}
			}))
			srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					connections.Add(1)
				}
			}
			srv.Start()
			defer srv.Close()
			if began, err := findAPIServers(t.Context(), &rest.Config{Host: srv.URL}, 16); err != nil || len(began) != c.want {
				t.Errorf("%d servers: %v %v", c.servers, began, err)
			}
		})
	}
}
