package deputy

import (
	"bufio"
	"cmp"
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
	"strings"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/deputy/reference"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
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

// tunnelEvidence is what was seen of the attacks on an agent, of streams through it, and of one without its target.
type tunnelEvidence struct {
	Attacks []attackEvidence `json:"attacks"`
	// Streams have, by name, what came through while the request was open, or why nothing did.
	Streams map[string]streamed `json:"streams"`
	Down    downEvidence        `json:"down"`
}

// attackEvidence is an attack as it was written, and its answer.
type attackEvidence struct {
	Host    string `json:"host"`
	AuditID string `json:"auditID"`
	Sent    string `json:"sent"`
	Code    int    `json:"code"`
	// Answered is the audit ID that the API server gave its answer, empty if it is not one of its own.
	Answered string          `json:"answered,omitempty"`
	Event    json.RawMessage `json:"event,omitempty"`
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

// tunnel attacks the agent, streams through it, and takes its target away.
func (p *plane) tunnel(ctx context.Context, people []person) (*tunnelEvidence, error) {
	a, stop, err := p.agent(ctx, p.url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stop() }()
	e := &tunnelEvidence{Streams: map[string]streamed{}}
	for _, t := range attacks(people[0], people[1]) {
		one, err := p.attack(ctx, a, t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		e.Attacks = append(e.Attacks, one)
	}
	for name, try := range map[string]func(context.Context, *agent, person) (string, error){"watch": p.watch, "websocket": p.websocket} {
		seen, err := try(ctx, a, people[0])
		if e.Streams[name] = (streamed{Seen: seen}); err != nil {
			e.Streams[name] = streamed{Problem: err.Error()}
		}
	}
	e.Down, err = p.down(ctx, people[0])
	return e, err
}

// judge judges attacks by the audit event, and streams by what came through.
func (e *tunnelEvidence) judge(part *Part, people []person) error {
	list := attacks(people[0], people[1])
	if len(e.Attacks) != len(list) || len(e.Streams) != 2 {
		return fmt.Errorf("there is evidence of %d attacks and %d streams, not of %d and 2", len(e.Attacks), len(e.Streams), len(list))
	}
	for i, t := range list {
		if err := e.Attacks[i].judge(part, t); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
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

// attack is a request with header lines as they are written, sent to the agent.
type attack struct {
	name  string
	lines []string
	// as is whom it may be made as, at most; empty if it must not arrive at all.
	as string
}

// attacks are by a person on another one, or on the agent itself.
func attacks(me, other person) []attack {
	mine := "Impersonate-User: " + me.name
	return []attack{
		{name: "as it should be", lines: []string{mine, "Impersonate-Group: " + me.groups[0]}, as: me.name},
		{name: "names in any case", lines: []string{"impersonate-USER: " + me.name}, as: me.name},
		{name: "a foreign Authorization", lines: []string{mine, "Authorization: Bearer foreign"}, as: me.name},
		{name: "two of them", lines: []string{mine, "Authorization: Bearer foreign", "authorization: Basic Zm9v"}, as: me.name},
		{name: "nobody impersonated"},
		{name: "an empty user", lines: []string{"Impersonate-User:"}},
		{name: "an empty user before another", lines: []string{"Impersonate-User:", mine}},
		{name: "two users", lines: []string{mine, "Impersonate-User: " + other.name}},
		{name: "two users, in another case", lines: []string{mine, "IMPERSONATE-USER: " + other.name}},
		{name: "a group without a user", lines: []string{"Impersonate-Group: " + me.groups[0]}},
		{name: "the user dropped by Connection", lines: []string{mine, "Connection: Impersonate-User"}},
		{name: "the user dropped by Connection, in another case", lines: []string{mine, "connection: keep-alive, iMpersonate-uSer"}},
		{name: "the user dropped by a second Connection", lines: []string{mine, "Connection: keep-alive", "Connection: Impersonate-User"}},
		{name: "the token dropped by Connection", lines: []string{mine, "Connection: Authorization"}},
		{name: "an underscore", lines: []string{mine, "Impersonate_User: " + other.name}},
		{name: "an unknown impersonation header", lines: []string{mine, "Impersonate-Users: " + other.name}},
		{name: "a front proxy's headers", lines: []string{mine, "X-Remote-User: " + other.name, "X-Remote-Group: system:masters"}, as: me.name},
		{name: "a user behind a line break", lines: []string{"Impersonate-User: " + me.name + "\r\n Impersonate-User: " + other.name}},
		{name: "a space before the colon", lines: []string{mine, "Impersonate-User : " + other.name}},
		{name: "system:masters", lines: []string{mine, "Impersonate-Group: system:masters"}},
		{name: "system:masters, in another case", lines: []string{mine, "impersonate-group: system:masters"}},
		{name: "an extra key that decodes to a header", lines: []string{mine, "Impersonate-Extra-%0d%0aImpersonate-User: " + other.name}},
		{name: "an encoded extra key", lines: []string{mine, "Impersonate-Extra-corp.example%2fteam: blue"}},
		{name: "a UID that is not granted", lines: []string{mine, "Impersonate-Uid: 1"}},
	}
}

// text is the attack as it is written, under an audit ID.
func (t attack) text(host, auditID string) string {
	return "GET " + paths[0] + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(append([]string{"Audit-Id: " + auditID}, t.lines...), "\r\n") + "\r\n\r\n"
}

// attack sends one. What the agent refuses never arrives, so there is no event to wait for. What the API server answered
// has one.
func (p *plane) attack(ctx context.Context, a *agent, t attack) (e attackEvidence, err error) {
	e.Host, e.AuditID = a.url.Host, string(uuid.NewUUID())
	e.Sent = t.text(e.Host, e.AuditID)
	if e.Code, e.Answered, err = rawRequest(ctx, a, e.Sent); err == nil {
		e.Event, err = p.arrived(ctx, e.AuditID, e.Answered)
	}
	return e, err
}

// judge judges an attack: a request may arrive as the person that it names, or not at all.
func (a *attackEvidence) judge(part *Part, t attack) error {
	if want := reports.Redact(t.text(a.Host, a.AuditID)); a.Sent != want {
		return fmt.Errorf("%q was sent, and it has to be %q", a.Sent, want)
	}
	if err := part.once(a.AuditID); err != nil {
		return err
	}
	part.Checks++
	e := verdicts.AuditOf(&verdicts.Observation{Audit: a.Event})
	if e != nil && string(e.AuditID) != cmp.Or(a.Answered, a.AuditID) {
		return fmt.Errorf("the event %s is not that of this request", e.AuditID)
	}
	arrived := e != nil && e.User.Username != "" // nobody whom the API server does not know
	switch {
	case e == nil && a.Answered != "":
		return fmt.Errorf("the API server answered %s, and its event is missing", a.Answered)
	case !arrived && t.as != "":
		part.fail("%s: it should have arrived and did not (code %d)", t.name, a.Code)
	case !arrived:
		part.Outcomes["refused by the agent"]++
	case e.ImpersonatedUser == nil && decision(*e) == "":
		part.Outcomes["refused by the API server"]++ // the impersonation filter
		if t.as != "" {
			part.fail("%s: it was refused (code %d)", t.name, a.Code)
		}
	case e.User.Username != proxyName:
		part.fail("%s: it was made by %q, not by the agent", t.name, e.User.Username)
	case e.ImpersonatedUser == nil:
		part.fail("%s: it was made as the agent itself", t.name)
	case t.as == "" || e.ImpersonatedUser.Username != t.as:
		part.fail("%s: it was made as %q", t.name, e.ImpersonatedUser.Username)
	default:
		part.Outcomes["as the person"]++
	}
	return nil
}

// rawRequest writes a request by hand: client libraries refuse most of these. answered is the audit ID that the API
// server gave its answer, empty if it is not one of its own.
func rawRequest(ctx context.Context, a *agent, text string) (code int, answered string, err error) {
	dialer := &tls.Dialer{Config: a.tls}
	conn, err := dialer.DialContext(ctx, "tcp", a.url.Host)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if _, err := io.WriteString(conn, text); err != nil {
		return 0, "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("Audit-Id"), errors.Join(err, resp.Body.Close())
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
	_, err := p.admin.CoreV1().Pods(usersNamespace).Create(ctx, &corev1.Pod{
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
