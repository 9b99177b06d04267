package deputy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/scenarios"
)

// tunnelled is a hub with agents on clusters of their own, each of which has opened its tunnel itself.
type tunnelled struct {
	*hub
	planes map[string]*plane
	people []*Identity
}

var tunnelledClusters = []string{"east", "west"}

// startTwoPlanes starts a control plane for each of the clusters. The given people may read pods there.
func startTwoPlanes(ctx context.Context, t *testing.T, people []*Identity) []*plane {
	t.Helper()
	return startTwoPlanesWith(ctx, t, append(userGrants(people, 1), proxyGrants(nil, false)...), []string{Namespace})
}

// startTwoPlanesWith starts two control planes with the same grants and namespaces.
func startTwoPlanesWith(ctx context.Context, t *testing.T, grants []scenarios.Grant, namespaces []string) (planes []*plane) {
	t.Helper()
	for range tunnelledClusters {
		p, err := startPlane(ctx, target(t), grants, namespaces)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Stop() })
		planes = append(planes, p)
	}
	return planes
}

// startTunnelled starts two control planes, a hub, and the agents that connect to it.
func startTunnelled(ctx context.Context, t *testing.T) *tunnelled {
	t.Helper()
	x := &tunnelled{
		planes: map[string]*plane{},
		people: []*Identity{impersonatedPerson("alice@corp", tierOf(0)), impersonatedPerson("bob@corp", tierOf(1))},
	}
	planes := startTwoPlanes(ctx, t, x.people)
	for n, cluster := range tunnelledClusters {
		x.planes[cluster] = planes[n]
	}
	var err error
	if x.hub, err = startHub(ctx, tunnelledClusters, planes); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.close() })
	return x
}

// client returns a client whose requests go to the agent of the cluster that route names.
func (x *tunnelled) client(route func(host string) string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(address)
		return x.Dial(ctx, route(host))
	}}, Timeout: timeout}
}

// request returns a request of a person to a cluster, with a marker.
func (x *tunnelled) request(ctx context.Context, t *testing.T, cluster, path string, who *Identity) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+cluster+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	who.addTo(req.Header)
	return req
}

// TestTwoClusters has two clusters behind one hub, each with an agent that opens its tunnel itself. Streams and
// upgrades have to work, and the agents have to reconnect after their connections have ended. TestMixedClusters checks
// that nothing for one cluster arrives at the other.
func TestTwoClusters(t *testing.T) {
	sample.InTurn(t, 0, 3)
	if testing.Short() {
		t.Skip("starts two control planes")
	}
	ctx := context.Background()
	x := startTunnelled(ctx, t)
	right := x.client(strings.Clone)
	t.Run("a cluster that is not known", func(t *testing.T) {
		if _, err := x.Dial(ctx, "north"); err == nil || !strings.Contains(err.Error(), `there is no cluster "north"`) {
			t.Error(err)
		}
	})
	t.Run("a watch, and again after the tunnel broke", func(t *testing.T) { x.tryWatch(ctx, t, right) })
	t.Run("an upgrade to WebSocket", func(t *testing.T) { x.tryWebSocket(ctx, t) })
	t.Run("a terminal and a port", func(t *testing.T) { x.tryUpgrades(ctx, t) })
}

// createPod creates a pod that never runs.
func createPod(ctx context.Context, t *testing.T, p *plane, name string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(bool),
			Containers:                   []corev1.Container{{Name: "pause", Image: "pause"}},
		},
	}
	if _, err := p.admin.CoreV1().Pods(Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// tryWatch sees a pod of the right cluster through a watch, closes all connections of its agent, and sees another pod
// through a new watch.
func (x *tunnelled) tryWatch(ctx context.Context, t *testing.T, client *http.Client) {
	for n, name := range []string{"before", "after"} {
		resp, err := client.Do(x.request(ctx, t, "east", watchPods, x.people[0]))
		if err != nil {
			t.Fatal(err)
		}
		createPod(ctx, t, x.planes["west"], "elsewhere-"+name)
		createPod(ctx, t, x.planes["east"], name)
		decoder, seen := json.NewDecoder(resp.Body), ""
		for !strings.Contains(seen, `"name":"`+name+`"`) {
			var event json.RawMessage
			if err := decoder.Decode(&event); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			seen = string(event)
			if strings.Contains(seen, "elsewhere-") {
				t.Fatalf("a pod of the other cluster is seen: %s", seen)
			}
		}
		if n == 0 {
			x.breakTunnels("east")
			if _, err := io.Copy(io.Discard, resp.Body); err == nil {
				t.Error("the watch ends as if it were complete, though its tunnel broke")
			}
		}
		_ = resp.Body.Close()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.tunnels["east"]) == 0 {
		t.Error("the agent did not come back")
	}
}

// tryWebSocket sees a pod through a WebSocket in the tunnel.
func (x *tunnelled) tryWebSocket(ctx context.Context, t *testing.T) {
	conn, err := x.Dial(ctx, "west")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	config, err := websocket.NewConfig("ws://west"+watchPods, "http://west")
	if err != nil {
		t.Fatal(err)
	}
	x.people[1].addTo(config.Header)
	_ = conn.SetDeadline(time.Now().Add(timeout))
	ws, err := websocket.NewClient(config, conn)
	if err != nil {
		t.Fatal(err)
	}
	createPod(ctx, t, x.planes["west"], "by-websocket")
	for events := json.NewDecoder(ws); ; {
		var event json.RawMessage
		if err := events.Decode(&event); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(event, []byte(`"by-websocket"`)) {
			return
		}
	}
}

// tryUpgrades asks for a terminal and a port by WebSocket and SPDY. Without a node nothing answers them, but the
// request has to arrive at the right cluster as the person, and the answer has to come back.
func (x *tunnelled) tryUpgrades(ctx context.Context, t *testing.T) {
	createPod(ctx, t, x.planes["east"], "upgraded")
	for name, c := range map[string]struct{ method, sub, upgrade string }{
		"a terminal by WebSocket": {http.MethodGet, "exec?command=id&stdout=true", "websocket"},
		"a terminal by SPDY":      {http.MethodPost, "exec?command=id&stdout=true", "SPDY/3.1"},
		"a port by SPDY":          {http.MethodPost, "portforward?", "SPDY/3.1"},
	} {
		run := newRun()
		req := x.request(ctx, t, "east", podsIn(Namespace)+"/upgraded/"+c.sub+"&marker="+url.QueryEscape(run), x.people[0])
		req.Method = c.method
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", c.upgrade)
		resp, err := x.client(strings.Clone).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		for cluster, p := range x.planes {
			log := p.auditLog()
			if err := log.settle(ctx, newRun()); err != nil {
				t.Fatal(err)
			}
			events := p.Events(run)
			isThere := len(events) > 0
			if isThere != (cluster == "east") {
				t.Errorf("%s (answered %d): %d events in %s", name, resp.StatusCode, len(events), cluster)
			}
			if isThere && arrivingUser(decodeEvent(events[0])).Username != x.people[0].Name {
				t.Errorf("%s: %s", name, events[0])
			}
		}
	}
}
