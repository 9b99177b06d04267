package deputy

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/deputy/reference"
	"github.com/authzconf/authzconf/engine/target"
)

// agent is a running end of a tunnel.
type agent struct {
	url       *url.URL
	transport http.RoundTripper
	tls       *tls.Config
}

// agent starts the reference agent in front of an address.
func (p *plane) agent(ctx context.Context, to *url.URL) (*agent, func() error, error) {
	return serveAgent(ctx, reference.NewAgent(to, p.transport, func() string { return p.token }))
}

func serveAgent(ctx context.Context, handler http.Handler) (*agent, func() error, error) {
	l, err := target.ServeLoopback(ctx, handler, nil)
	if err != nil {
		return nil, nil, err
	}
	a := &agent{tls: &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}}
	a.tls.RootCAs.AppendCertsFromPEM(l.CA)
	if a.url, err = url.Parse(l.URL); err == nil {
		a.transport, err = rest.TransportFor(&rest.Config{Host: l.URL, TLSClientConfig: rest.TLSClientConfig{CAData: l.CA}})
	}
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return a, l.Close, nil
}

// get sends a request for a person.
func (a *agent) get(ctx context.Context, path string, who person) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url.String()+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Impersonate-User", who.name)
	return (&http.Client{Transport: a.transport}).Do(req)
}

// endpoint is the agent as attacks see it: the credentials of a person are the headers that impersonate him.
func (a *agent) endpoint(people []person, trail auditTrail) *endpoint {
	return &endpoint{a.url, a.tls, named(people), Namespace, trail}
}

// named are people who say themselves who they are.
func named(people []person) (all []*Identity) {
	for _, p := range people {
		all = append(all, &Identity{Name: p.name, headers: []header{{"Impersonate-User", p.name}, {"Impersonate-Group", p.groups[0]}}, public: true})
	}
	return all
}

// tunnelEvidence is what was seen of streams through an agent, and of one without its target.
type tunnelEvidence struct {
	// Streams have, by name, what came through while the request was open, or why nothing did.
	Streams map[string]streamed `json:"streams"`
	Down    downEvidence        `json:"down"`
}

type streamed struct {
	Seen    string `json:"seen,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// downEvidence is the answer of an agent whose target is not at an address. TOKEN stands where its token was.
type downEvidence struct {
	Address string        `json:"address"`
	Code    int           `json:"code"`
	Took    time.Duration `json:"took"`
	Body    string        `json:"body"`
}

// attack attacks the agent.
func (p *plane) attack(ctx context.Context, people []person) (*attacksEvidence, error) {
	table, err := attacks()
	if err != nil {
		return nil, err
	}
	a, stop, err := p.agent(ctx, p.url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stop() }()
	return a.endpoint(people, p.trail()).attack(ctx, table, 1)
}

// tunnel streams through the agent, and takes its target away.
func (p *plane) tunnel(ctx context.Context, people []person) (*tunnelEvidence, error) {
	a, stop, err := p.agent(ctx, p.url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stop() }()
	e := &tunnelEvidence{Streams: map[string]streamed{}}
	for name, try := range map[string]func(context.Context, *agent, person) (string, error){"watch": p.watch, "websocket": p.websocket} {
		seen, err := try(ctx, a, people[0])
		if e.Streams[name] = (streamed{Seen: seen}); err != nil {
			e.Streams[name] = streamed{Problem: err.Error()}
		}
	}
	e.Down, err = p.down(ctx, people[0])
	return e, err
}

// judge judges streams by what came through.
func (e *tunnelEvidence) judge(part *Part) error {
	if len(e.Streams) != 2 {
		return fmt.Errorf("there is evidence of %d streams, not of 2", len(e.Streams))
	}
	for name, want := range map[string]string{"watch": `"ADDED"`, "websocket": `"upgraded"`} {
		part.Checks++
		if s := e.Streams[name]; s.Problem != "" || !strings.Contains(s.Seen, want) {
			part.fail("%s: %s", name, cmp.Or(s.Problem, fmt.Sprintf("what came first is %.100q", s.Seen)))
			continue
		}
		part.Outcomes["streamed"]++
	}
	part.Checks++
	if d := e.Down; d.Code != http.StatusBadGateway || d.Took <= 0 || d.Took > 5*time.Second || d.Address == "" || strings.Contains(d.Body, d.Address) || strings.Contains(d.Body, hiddenToken) {
		part.fail("a target that is down: code %d after %s: %.200s", d.Code, d.Took, d.Body)
		return nil
	}
	part.Outcomes["down, and said so"]++
	return nil
}

// watch sees an event through the tunnel while the request is still open.
func (p *plane) watch(ctx context.Context, a *agent, who person) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := a.get(ctx, paths[0]+"?watch=true", who)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("code %d", resp.StatusCode)
	}
	if err := p.makePod(ctx, "watched"); err != nil {
		return "", err
	}
	return bufio.NewReader(resp.Body).ReadString('\n')
}

// websocket is a watch over a connection that is upgraded.
func (p *plane) websocket(ctx context.Context, a *agent, who person) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	config, err := websocket.NewConfig("wss://"+a.url.Host+paths[0]+"?watch=true", a.url.String())
	if err != nil {
		return "", err
	}
	config.TlsConfig = a.tls
	config.Header.Set("Impersonate-User", who.name)
	conn, err := config.DialContext(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if err := p.makePod(ctx, "upgraded"); err != nil {
		return "", err
	}
	for {
		var message string
		if err := websocket.Message.Receive(conn, &message); err != nil || strings.Contains(message, `"upgraded"`) {
			return message, err
		}
	}
}

// makePod makes a pod that never runs.
func (p *plane) makePod(ctx context.Context, name string) error {
	_, err := p.admin.CoreV1().Pods(Namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "pause", Image: "pause"}}},
	}, metav1.CreateOptions{})
	return err
}

// hiddenToken stands where the agent's token was in an answer.
const hiddenToken = "TOKEN"

// down sends through an agent whose target is not there: the answer has to come at once,
// to be the agent's own, and to give nothing away.
func (p *plane) down(ctx context.Context, who person) (e downEvidence, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return e, err
	}
	e.Address = listener.Addr().String()
	_ = listener.Close()
	a, stop, err := p.agent(ctx, &url.URL{Scheme: "https", Host: e.Address})
	if err != nil {
		return e, err
	}
	defer func() { _ = stop() }()
	begun := time.Now()
	resp, err := a.get(ctx, paths[0], who)
	if err != nil {
		return e, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	e.Code, e.Took, e.Body = resp.StatusCode, time.Since(begun), strings.ReplaceAll(string(body), p.token, hiddenToken)
	return e, err
}
