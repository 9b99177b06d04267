package deputy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/engine/product/producttest"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/verdicts"
)

// twoClusterDeputy is a proxy with two clusters below /clusters/NAME. It impersonates the person of a session. fault is
// what is wrong with it, or "" if it is right.
type twoClusterDeputy struct {
	names   []string
	targets map[string]*httputil.ReverseProxy
	fault   string
	// revoked is a file; once it is there, nobody is let in. If it is empty, nothing is ever revoked.
	revoked string

	mu       sync.Mutex
	requests int
	// lastOf is the cluster that a person chose last. For a connection it is the cluster that the connection's first
	// request chose.
	lastOf  map[string]string
	answers map[string]*keptAnswer
}

// keptAnswer is an answer in a cache whose key lacks the cluster.
type keptAnswer struct {
	code   int
	header http.Header
	body   []byte
}

// newTwoClusterDeputy returns a proxy in front of clusters, by their names and how to reach them.
func newTwoClusterDeputy(names []string, configs []*rest.Config, fault string) (*twoClusterDeputy, error) {
	d := &twoClusterDeputy{
		names:   names,
		targets: map[string]*httputil.ReverseProxy{},
		fault:   fault,
		lastOf:  map[string]string{},
		answers: map[string]*keptAnswer{},
	}
	for n, name := range names {
		to, err := url.Parse(configs[n].Host)
		if err != nil {
			return nil, err
		}
		config := rest.CopyConfig(configs[n])
		config.NextProtos = []string{"http/1.1"}
		transport, err := rest.TransportFor(config)
		if err != nil {
			return nil, err
		}
		d.targets[name] = &httputil.ReverseProxy{
			Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(to)
				for header := range r.Out.Header {
					if strings.HasPrefix(strings.ReplaceAll(header, "_", "-"), "Impersonate") {
						r.Out.Header.Del(header)
					}
				}
				d.identify(r, configs[n].BearerToken)
			},
		}
	}
	return d, nil
}

// identify sets whose request it is, and the token that it is sent with.
func (d *twoClusterDeputy) identify(r *httputil.ProxyRequest, token string) {
	out, person := r.Out.Header, r.In.Header.Get(sessionHeader)
	asked, isElsewhere := r.In.Header.Get("Impersonate-User"), r.In.Header.Get(clusterHeader) == d.names[1]
	isUp := r.In.Header.Get(upHeader) != ""
	trusts := map[string]bool{"trusts headers elsewhere": isElsewhere, "trusts headers upwards": isUp}[d.fault]
	keepsToken := d.fault == "keeps tokens elsewhere" && isElsewhere && out.Get("Authorization") != ""
	out.Del(clusterHeader)
	out.Del(upHeader)
	if !keepsToken {
		out.Set("Authorization", "Bearer "+token)
	}
	if trusts && asked != "" {
		person = asked
	}
	if groups := r.In.Header.Values("Impersonate-Group"); trusts && len(groups) > 0 {
		out["Impersonate-Group"] = groups
	}
	isDropped := d.fault == "obeys Connection elsewhere" && isElsewhere &&
		strings.Contains(r.In.Header.Get("Connection"), "Impersonate-User")
	isLost := d.fault == "loses the session upwards" && isUp
	if person != "" && !isDropped && !isLost {
		out.Set("Impersonate-User", person)
	}
}

// In these headers the proxy remembers which cluster a request goes to, and whether its path leads upwards.
const clusterHeader, upHeader = "X-Test-Cluster", "X-Test-Up"

// mixedFaults are the ways to confuse two clusters, each with the finding that it must lead to.
var mixedFaults = map[string]string{
	"":                       "",
	"takes turns":            "it was for the other cluster, and arrived at",
	"keeps the first choice": `one cluster after the other: it was for the other cluster, and arrived at "east" as "alice@corp"`,
	"keeps the choice of a connection": `two people and two clusters on one connection: it was for the other cluster, ` +
		`and arrived at "east"`,
	"believes a header":            `the other cluster's name in headers: it was for the other cluster, and arrived at "west" as "alice@corp"`,
	"believes a path in a header":  `the other cluster's path in headers: it was for the other cluster, and arrived at "west" as "alice@corp"`,
	"believes a cookie":            `the other cluster's name in cookies: it was for the other cluster, and arrived at "west" as "alice@corp"`,
	"believes the query":           `the other cluster's name in the query: it was for the other cluster, and arrived at "west" as "alice@corp"`,
	"believes the host":            `the other cluster's name as the host: it was for the other cluster, and arrived at "west" as "alice@corp"`,
	"falls back":                   `a cluster that is not there: it was for a cluster that is not there, and arrived at "east" as "alice@corp"`,
	"caches without the cluster":   "the same object of both clusters: request 2 was answered with a PodList, and did not arrive: it is the answer of the other cluster",
	"sends upgrades to the first":  `a WebSocket at the other cluster: it was for the other cluster, and arrived at "east" as "alice@corp"`,
	"goes up by encoded dots":      "", // it may arrive at either cluster
	"sends to both":                `control: it was for the other cluster, and arrived at "west" as "alice@corp"`,
	"loses the session elsewhere":  `control of the other cluster: it was made as the proxy itself`,
	"knows the first alone":        `control of the other cluster: it was for the other cluster, and arrived at "east" as "alice@corp"`,
	"knows the second alone":       `control: it was for the other cluster, and arrived at "west" as "alice@corp"`,
	"trusts headers elsewhere":     `another user at the other cluster: it was made as "bob@corp", not as "alice@corp"`,
	"lets nobody in elsewhere":     "no identity at the other cluster: it was made as the proxy itself",
	"keeps tokens elsewhere":       "a foreign Authorization at the other cluster: its own Authorization reached the API server",
	"obeys Connection elsewhere":   "Connection names the user at the other cluster: it was made as the proxy itself",
	"loses the session upwards":    "up from one cluster to the other: it was made as the proxy itself",
	"trusts headers upwards":       `up from one cluster to the other as another user: it was made as "bob@corp", not as "alice@corp"`,
	"finds clusters by first name": `a cluster that is not there: it was for a cluster that is not there, and arrived at "west" as "alice@corp"`,
}

type connKey struct{}

func (d *twoClusterDeputy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	person := r.Header.Get(sessionHeader)
	escaped, isUp := d.cleanPath(r.URL)
	name, rest, _ := strings.Cut(strings.TrimPrefix(escaped, "/clusters/"), "/")
	isBeyond := name == d.names[1] || isUp
	isLetIn := d.fault == "lets nobody in elsewhere" && isBeyond
	isPlain := slices.Contains([]string{"", "upgrade", "close"}, strings.ToLower(r.Header.Get("Connection")))
	obeys := d.fault == "obeys Connection elsewhere" && name == d.names[1]
	switch {
	case person == "" && !isLetIn, len(r.Header.Values(sessionHeader)) > 1:
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	case d.isRevoked(name):
		http.Error(w, "who were you?", http.StatusUnauthorized)
		return
	case !isPlain && !obeys:
		http.Error(w, "Connection names headers", http.StatusBadRequest)
		return
	}
	d.mu.Lock()
	name = d.choose(r, person, name)
	d.mu.Unlock()
	hasDots := strings.Contains(r.URL.Path, "..") && !isUp
	if d.targets[name] == nil || hasDots {
		http.Error(w, "there is no such cluster", http.StatusNotFound)
		return
	}
	out := r.Clone(r.Context())
	out.Header.Set(clusterHeader, name)
	if isUp {
		out.Header.Set(upHeader, "true")
	}
	unescaped, err := url.PathUnescape("/" + rest)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out.URL.Path, out.URL.RawPath, out.Host = unescaped, "/"+rest, ""
	if d.fault == "loses the session elsewhere" && name == d.names[1] {
		out.Header.Del(sessionHeader)
	}
	d.send(w, out, name, "/"+rest+"?"+r.URL.RawQuery)
}

// proxyConfigs returns how the account of the proxy reaches each control plane.
func proxyConfigs(planes []*plane) []*rest.Config {
	return seq.Map(planes, func(p *plane) *rest.Config {
		config := p.Anonymous()
		config.BearerToken = p.token
		return config
	})
}

// isRevoked reports whether nobody is let in to a cluster any more.
func (d *twoClusterDeputy) isRevoked(cluster string) bool {
	isKept := d.fault == "keeps sessions elsewhere" && cluster == d.names[1]
	if d.revoked == "" || isKept {
		return false
	}
	_, err := os.Stat(d.revoked)
	return err == nil
}

// cleanPath returns the cleaned path of a request, and whether it led upwards. A proxy may follow such a path.
func (d *twoClusterDeputy) cleanPath(u *url.URL) (escaped string, isUp bool) {
	escaped = u.EscapedPath()
	goesUp := slices.Contains([]string{"goes up by encoded dots", "loses the session upwards", "trusts headers upwards", "lets nobody in elsewhere"}, d.fault)
	if !goesUp || !strings.Contains(u.Path, "/../") {
		return escaped, false
	}
	return path.Clean(strings.ReplaceAll(escaped, "%2e", ".")), true
}

// choose returns the cluster that a request goes to.
func (d *twoClusterDeputy) choose(r *http.Request, person, name string) string {
	d.requests++
	other := d.names[1]
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	key := map[string]string{"keeps the first choice": person, "keeps the choice of a connection": fmt.Sprintf("%p", conn)}[d.fault]
	cookie, _ := r.Cookie("cluster")
	isTold := map[string]bool{
		"believes a header":           r.Header.Get("X-Cluster") == other,
		"believes a path in a header": strings.Contains(r.Header.Get("X-Original-Url"), "/"+other+"/"),
		"believes a cookie":           cookie != nil && cookie.Value == other,
		"believes the query":          r.URL.Query().Get("cluster") == other,
		"believes the host":           r.Host == other,
	}[d.fault]
	switch {
	case d.fault == "takes turns":
		return d.names[d.requests%2]
	case key != "" && d.lastOf[key] != "":
		return d.lastOf[key]
	case isTold, d.fault == "knows the second alone":
		return other
	case d.fault == "knows the first alone":
		return d.names[0]
	case d.fault == "falls back" && d.targets[name] == nil:
		return d.names[0]
	case d.fault == "finds clusters by first name" && strings.HasPrefix(name, other):
		return other
	case d.fault == "sends upgrades to the first" && r.Header.Get("Upgrade") != "":
		return d.names[0]
	case d.fault == "reviews at the first" && strings.Contains(r.URL.Path, "/apis/authorization.k8s.io/"):
		return d.names[0]
	}
	if key != "" {
		d.lastOf[key] = name
	}
	return name
}

// send sends a request to a cluster, or answers it from the cache.
func (d *twoClusterDeputy) send(w http.ResponseWriter, r *http.Request, name, key string) {
	if d.fault == "sends to both" {
		for _, other := range d.names {
			if other != name {
				d.targets[other].ServeHTTP(&keptAnswer{header: http.Header{}}, r.Clone(r.Context()))
			}
		}
	}
	if d.fault != "caches without the cluster" || r.Header.Get("Upgrade") != "" {
		d.targets[name].ServeHTTP(w, r)
		return
	}
	key = r.Header.Get(sessionHeader) + key
	d.mu.Lock()
	kept := d.answers[key]
	d.mu.Unlock()
	if kept == nil {
		kept = &keptAnswer{header: http.Header{}}
		d.targets[name].ServeHTTP(kept, r)
		d.mu.Lock()
		d.answers[key] = kept
		d.mu.Unlock()
	}
	maps.Copy(w.Header(), kept.header)
	w.WriteHeader(kept.code)
	_, _ = io.Copy(w, bytes.NewReader(kept.body))
}

// Header implements http.ResponseWriter.
func (k *keptAnswer) Header() http.Header { return k.header }

// WriteHeader implements http.ResponseWriter.
func (k *keptAnswer) WriteHeader(code int) { k.code = code }

// Write implements http.ResponseWriter.
func (k *keptAnswer) Write(data []byte) (int, error) {
	k.body = append(k.body, data...)
	return len(data), nil
}

// TestMixedClusters tries the attacks about two clusters in front of two API servers: on a proxy that is right, which
// has to pass, and on proxies that confuse the clusters in one way each.
func TestMixedClusters(t *testing.T) {
	sample.InTurn(t, 0, 3)
	if testing.Short() {
		t.Skip("starts two control planes")
	}
	t.Parallel() // it mostly waits
	ctx := context.Background()
	people := sessions("alice@corp", "bob@corp")
	planes := startTwoPlanes(ctx, t, people)
	configs := proxyConfigs(planes)
	caught := map[string]bool{}
	faulty := slices.DeleteFunc(slices.Sorted(maps.Keys(mixedFaults)), func(fault string) bool { return mixedFaults[fault] == "" })
	tried := sample.Some(5, faulty)
	for _, fault := range append(tried, "", "goes up by encoded dots") { // the last two are right
		t.Run("it "+fault, func(t *testing.T) {
			d, err := newTwoClusterDeputy(tunnelledClusters, configs, fault)
			if err != nil {
				t.Fatal(err)
			}
			for _, attack := range tryMixed(ctx, t, d.serve(t, people, planes), mixedFaults[fault]) {
				caught[attack] = true
			}
		})
	}
	if len(tried) < len(faulty) {
		return
	}
	table := attacksOf(func(kind string) bool { return kind == clustersKind })
	for _, a := range table {
		if !caught[a.Name] {
			t.Errorf("%s is caught on no proxy", a.Name)
		}
	}
	t.Logf("each of %d attacks is caught on one of %d proxies", len(table), len(faulty))
}

// serve serves a proxy until the test ends.
func (d *twoClusterDeputy) serve(t *testing.T, people []*Identity, planes []*plane) *endpoint {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := d.server(listener.Addr().String())
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	ep := &endpoint{
		url:       &url.URL{Scheme: "http", Host: listener.Addr().String(), Path: "/clusters/" + d.names[0]},
		people:    people,
		namespace: Namespace,
		timeout:   timeout,
		cluster:   d.names[0],
		other:     &secondCluster{name: d.names[1], prefix: "/clusters/" + d.names[1]},
	}
	ep.useLogs(planes)
	return ep
}

// server returns a server of the proxy whose requests know their connection.
func (d *twoClusterDeputy) server(address string) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{ //nolint:gosec // only tests send requests
		Protocols: protocols,
		Addr:      address, Handler: d, ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
}

// tryMixed tries the controls, the attacks about two clusters, and everybody at the same time on both. want is what has
// to be found; if it is empty, nothing may be found. It returns the attacks that were caught.
func tryMixed(ctx context.Context, t *testing.T, ep *endpoint, want string) (caught []string) {
	t.Helper()
	isKind := func(kind string) bool { return kind == controlsKind || kind == clustersKind }
	table, out := attacksOf(isKind), newJudgement()
	e, err := ep.sendAttacks(ctx, table, 1)
	if err != nil {
		t.Fatal(err)
	}
	judgeInto(t, out, e, table, ep.people, proxyName, false)
	all, err := ep.sendForEverybody(ctx, 10)
	if err != nil {
		t.Fatal(err)
	}
	judgeInto(t, out, all, requestsOfEverybody(ep.people, 10, true), ep.people, proxyName, false)
	isWrong := !finds(out, want)
	if want == "" {
		isWrong = len(out.failures) > 0 || out.outcomes[asPerson] == 0
	}
	if isWrong || out.inconclusive != "" {
		t.Errorf("%q, and it should be %q; %s", out.failures, want, out.inconclusive)
	}
	t.Log(out.summaryLine())
	return seq.Map(out.findings, func(f finding) string { return f.attack })
}

// runTwoClusterDeputy serves a proxy in front of the two contexts of KUBECONFIG, until it is killed.
func runTwoClusterDeputy(address, fault string) error {
	byName, err := configsOfContexts(os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	var configs []*rest.Config
	for _, name := range tunnelledClusters {
		configs = append(configs, byName[name])
	}
	d, err := newTwoClusterDeputy(tunnelledClusters, configs, fault)
	if err != nil {
		return err
	}
	return d.server(address).ListenAndServe()
}

// TestMixedRun tries the proxy with two clusters as its owner would, with a command that starts it, and verifies the
// report.
func TestMixedRun(t *testing.T) {
	sample.InTurn(t, 1, 3)
	if testing.Short() {
		t.Skip("starts control planes")
	}
	t.Parallel() // it mostly waits
	for fault, want := range map[string]verdicts.Verdict{"": verdicts.Passed, "keeps the first choice": verdicts.Failed} {
		t.Run("it "+fault, func(t *testing.T) {
			address := freeAddress(t)
			made := producttest.Run(
				context.Background(),
				t,
				Product,
				"deputy",
				"--proxy=http://"+address,
				"--clusters=east,west",
				"--api-prefix=/clusters/{cluster}",
				"--parts=attacks,audit-logs",
				"--requests-each=6",
				"--timeout=20s",
				"--focus=attacks/clusters|audit-logs",
				"--identity=alice@corp=header:"+sessionHeader+": alice@corp",
				"--identity=bob@corp=header:"+sessionHeader+": bob@corp",
				fmt.Sprintf("--proxy-command=%s='clusters|%s|%s' exec %s", helperEnv, address, fault, os.Args[0]),
			)
			checkRun(t, made, want)
		})
	}
}

// TestMixedOnExistingClusters tries the proxy on two running clusters, with one kubeconfig that has a context for each,
// and with an audit log for each. A right proxy passes, and one that confuses the clusters fails.
func TestMixedOnExistingClusters(t *testing.T) {
	sample.InTurn(t, 2, 3)
	if testing.Short() {
		t.Skip("starts two control planes")
	}
	t.Parallel() // it mostly waits
	ctx, dir := context.Background(), t.TempDir()
	people := sessions("alice@corp", "bob@corp")
	var proxied []*rest.Config
	var admins []clusters.Context
	for _, cluster := range tunnelledClusters {
		behind, admin := startLogged(ctx, t, dir, cluster, people)
		proxied, admins = append(proxied, behind), append(admins, clusters.Context{Name: cluster, Config: admin})
	}
	kubeconfig := filepath.Join(dir, "admin.conf")
	data, err := clusters.Kubeconfigs(admins...)
	if err := errors.Join(err, os.WriteFile(kubeconfig, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	for fault, want := range map[string]verdicts.Verdict{"": verdicts.Passed, "falls back": verdicts.Failed} {
		t.Run("it "+fault, func(t *testing.T) {
			d, err := newTwoClusterDeputy(tunnelledClusters, proxied, fault)
			if err != nil {
				t.Fatal(err)
			}
			subject := httptest.NewServer(d)
			defer subject.Close()
			made := producttest.Run(ctx, t, Product,
				"deputy", "--proxy="+subject.URL, "--clusters=east,west", "--api-prefix=/clusters/{cluster}", "--focus=attacks/clusters",
				"--kubeconfig="+kubeconfig, "--audit-log="+filepath.Join(dir, "{cluster}.log"), "--namespace="+Namespace,
				"--identity=alice@corp=header:"+sessionHeader+": alice@corp", "--identity=bob@corp=header:"+sessionHeader+": bob@corp")
			checkRun(t, made, want)
		})
	}
}

// startLogged starts a control plane whose audit log grows in a file with the cluster's name, and returns how a proxy
// and an administrator reach it.
func startLogged(ctx context.Context, t *testing.T, dir, cluster string, people []*Identity) (proxied, admin *rest.Config) {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, cluster+".log"))
	if err != nil {
		t.Fatal(err)
	}
	receiver := httptest.NewServer(&batchReceiver{into: file})
	t.Cleanup(func() { receiver.Close(); _ = file.Close() })
	o, own := target(t), filepath.Join(dir, cluster)
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	o.KubeAPIServerPath = wrapAPIServer(ctx, t, own, o, strings.TrimPrefix(receiver.URL, "http://"))
	p, err := startPlane(ctx, o, append(userGrants(people, 1), proxyGrants(nil, false)...), []string{Namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop() })
	proxied, admin = p.Anonymous(), p.Admin()
	proxied.BearerToken = p.token
	if err := rest.LoadTLSFiles(admin); err != nil {
		t.Fatal(err)
	}
	return proxied, admin
}

// TestOneLogForTwoClusters checks that two clusters with the same audit log are refused.
func TestOneLogForTwoClusters(t *testing.T) {
	var mu sync.Mutex
	var events []json.RawMessage
	log := auditLog{
		sendMarked: func(_ context.Context, marker string) error {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, json.RawMessage(`{"requestURI": "/`+marker+`"}`))
			return nil
		},
		find: func(texts ...string) (out []json.RawMessage, _ error) {
			mu.Lock()
			defer mu.Unlock()
			for _, event := range events {
				if strings.Contains(string(event), texts[0]) {
					out = append(out, event)
				}
			}
			return out, nil
		},
		timeout: timeout,
	}
	ep := &endpoint{cluster: "east", log: log, other: &secondCluster{name: "west", log: log}}
	err := ep.settle(t.Context())
	if err == nil || !strings.Contains(err.Error(), "a request to the cluster east is in the audit log of west") {
		t.Error(err)
	}
}
