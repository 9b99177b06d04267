package deputy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/deputy/reference"
)

// tunnelled is a hub with agents on clusters of their own, each of which has opened its tunnel itself.
type tunnelled struct {
	hub    *reference.Hub
	planes map[string]*plane
	people []*Identity

	mu    sync.Mutex
	conns map[string][]net.Conn // the agents' connections
	// dialed is how many connections each agent has opened.
	dialed map[string]int
}

var tunnelledClusters = []string{"east", "west"}

// startTunnelled starts two control planes, a hub, and the agents that connect to it.
func startTunnelled(ctx context.Context, t *testing.T) *tunnelled {
	t.Helper()
	dir := t.TempDir()
	certificates(t, dir, tunnelledClusters...)
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		t.Fatal(err)
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	x := &tunnelled{
		hub: reference.NewHub(tunnelledClusters...), planes: map[string]*plane{}, conns: map[string][]net.Conn{}, dialed: map[string]int{},
		people: []*Identity{impersonatedPerson("alice@corp", tierOf(0)), impersonatedPerson("bob@corp", tierOf(1))},
	}
	go func() { _ = x.hub.Serve(listener) }()
	for _, cluster := range tunnelledClusters {
		p, err := startPlane(ctx, target(t), append(userGrants(x.people, 1), proxyGrants(nil, false)...), []string{Namespace})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Stop() })
		x.planes[cluster] = p
		cert, err := tls.LoadX509KeyPair(filepath.Join(dir, cluster+".pem"), filepath.Join(dir, cluster+".key"))
		if err != nil {
			t.Fatal(err)
		}
		x.startAgent(t, p, cluster, listener.Addr().String(), &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, MinVersion: tls.VersionTLS12})
	}
	return x
}

// startAgent starts the reference agent of a cluster at the end of a tunnel that it opens.
func (x *tunnelled) startAgent(t *testing.T, p *plane, cluster, hub string, config *tls.Config) {
	t.Helper()
	tunnel := reference.ConnectTunnel(func(ctx context.Context) (net.Conn, error) {
		conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", hub)
		if err == nil {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.conns[cluster] = append(x.conns[cluster], conn)
			x.dialed[cluster]++
		}
		return conn, err
	})
	toServer := p.Anonymous()
	toServer.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrade to SPDY.
	transport, err := rest.TransportFor(toServer)
	if err != nil {
		t.Fatal(err)
	}
	agent := &http.Server{Handler: reference.NewAgent(p.url, transport, func() string { return p.token }), ReadHeaderTimeout: timeout}
	go func() { _ = agent.Serve(tunnel) }()
	t.Cleanup(func() { _ = errors.Join(agent.Close(), tunnel.Close()) })
}

// client returns a client whose requests go to the agent of the cluster that route names.
func (x *tunnelled) client(route func(host string) string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(address)
		return x.hub.Dial(ctx, route(host))
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

// sendMarked sends requests of both people to both clusters, all at once, and returns what arrived at the wrong one.
func (x *tunnelled) sendMarked(ctx context.Context, t *testing.T, client *http.Client, each int) (wrong []string) {
	t.Helper()
	run := newRun()
	var all sync.WaitGroup
	for _, cluster := range tunnelledClusters {
		for _, who := range x.people {
			for n := range each {
				all.Go(func() {
					path := podsIn(Namespace) + queryOf(fmt.Sprintf("%s-%s-%d", run, cluster, n))
					resp, err := client.Do(x.request(ctx, t, cluster, path, who))
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				})
			}
		}
	}
	all.Wait()
	for cluster, p := range x.planes {
		log := p.auditLog()
		events, err := log.eventsOf(ctx, run, "")
		if err != nil {
			t.Fatal(err)
		}
		arrived := 0
		for _, raw := range events {
			event := decode(raw)
			if event == nil || event.ImpersonatedUser == nil {
				continue
			}
			arrived++
			if !strings.Contains(event.RequestURI, run+"-"+cluster+"-") {
				wrong = append(wrong, fmt.Sprintf("%s: %s as %s", cluster, event.RequestURI, event.ImpersonatedUser.Username))
			}
		}
		if want := each * len(x.people); len(wrong) == 0 && arrived != want {
			wrong = append(wrong, fmt.Sprintf("%s: %d requests arrived, not %d", cluster, arrived, want))
		}
	}
	return wrong
}

// TestTwoClusters has two clusters behind one hub, each with an agent that opens its tunnel itself: what is for one never arrives
// at the other, streams and upgrades get through, and after connections have ended the agents come back.
func TestTwoClusters(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two control planes")
	}
	ctx := context.Background()
	x := startTunnelled(ctx, t)
	right := x.client(strings.Clone)
	t.Run("each request arrives where it belongs", func(t *testing.T) {
		if wrong := x.sendMarked(ctx, t, right, 25); len(wrong) > 0 {
			t.Errorf("%q", wrong)
		}
	})
	t.Run("a hub that confuses clusters is detected", func(t *testing.T) {
		var mu sync.Mutex
		n := 0
		confused := x.client(func(string) string {
			mu.Lock()
			defer mu.Unlock()
			n++
			return tunnelledClusters[n%2]
		})
		if wrong := x.sendMarked(ctx, t, confused, 5); len(wrong) == 0 {
			t.Error("nothing is found")
		}
	})
	t.Run("a cluster that is not known", func(t *testing.T) {
		if _, err := x.hub.Dial(ctx, "north"); err == nil || !strings.Contains(err.Error(), `there is no cluster "north"`) {
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
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "pause", Image: "pause"}}},
	}
	if _, err := p.admin.CoreV1().Pods(Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// tryWatch sees a pod of the right cluster through a watch, ends all connections of its agent, and sees another one by a new watch.
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
			x.breakTunnel("east")
			if _, err := io.Copy(io.Discard, resp.Body); err == nil {
				t.Error("the watch ends as if it were complete, though its tunnel broke")
			}
		}
		_ = resp.Body.Close()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.conns["east"]) == 0 {
		t.Error("the agent did not come back")
	}
}

// breakTunnel ends all connections that an agent has opened.
func (x *tunnelled) breakTunnel(cluster string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, conn := range x.conns[cluster] {
		_ = conn.Close()
	}
	x.conns[cluster] = nil
}

// tryWebSocket sees a pod by a WebSocket through the tunnel.
func (x *tunnelled) tryWebSocket(ctx context.Context, t *testing.T) {
	conn, err := x.hub.Dial(ctx, "west")
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

// tryUpgrades asks for a terminal and a port by WebSocket and SPDY: without a node nothing answers them, but the question has to
// arrive at the right cluster, as the person, and the answer has to come back.
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
			if isThere && arrivingUser(decode(events[0])).Username != x.people[0].Name {
				t.Errorf("%s: %s", name, events[0])
			}
		}
	}
}
