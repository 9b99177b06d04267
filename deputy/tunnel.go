package deputy

import (
	"bytes"
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

	"github.com/authzconf/authzconf/deputy/reference"
	"github.com/authzconf/authzconf/engine/target"
)

// serve serves whoever acts for people.
func (p *plane) serve(ctx context.Context, handler http.Handler, people []*Identity) (*endpoint, error) {
	l, err := target.ServeLoopback(ctx, handler, nil)
	if err != nil {
		return nil, err
	}
	ep := &endpoint{tls: &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}, people: people, namespace: Namespace, timeout: timeout, trail: p.trail(), plane: p, close: l.Close}
	ep.tls.RootCAs.AppendCertsFromPEM(l.CA)
	if ep.url, err = url.Parse(l.URL); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return ep, nil
}

// agent starts the reference agent, the end of a tunnel, in front of an address.
func (p *plane) agent(ctx context.Context, to *url.URL, people []*Identity) (*endpoint, error) {
	return p.serve(ctx, reference.NewAgent(to, p.transport, func() string { return p.token }), people)
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

// tunnel streams through the agent, and takes its target away.
func (p *plane) tunnel(ctx context.Context, agent *endpoint) (e *tunnelEvidence, err error) {
	e = &tunnelEvidence{Streams: map[string]streamed{}}
	for name := range streams {
		seen, err := p.stream(ctx, agent, name)
		if e.Streams[name] = (streamed{Seen: seen}); err != nil {
			e.Streams[name] = streamed{Problem: err.Error()}
		}
	}
	e.Down, err = p.down(ctx, agent.people)
	return e, err
}

// judge judges streams by what came through.
func (e *tunnelEvidence) judge(part *Part) error {
	if len(e.Streams) != len(streams) {
		return fmt.Errorf("there is evidence of %d streams, not of %d", len(e.Streams), len(streams))
	}
	for name := range streams {
		part.Checks++
		if s := e.Streams[name]; s.Problem != "" || !strings.Contains(s.Seen, `"ADDED"`) || !strings.Contains(s.Seen, `"name":"`+name+`"`) {
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

var watchPods = podsIn(Namespace) + "?watch=true"

// streams are the ways to watch pods through an agent.
var streams = map[string]func(context.Context, *endpoint) (io.ReadCloser, error){
	"watch": func(ctx context.Context, agent *endpoint) (io.ReadCloser, error) {
		resp, err := agent.get(ctx, watchPods, agent.people[0])
		if err == nil && resp.StatusCode != http.StatusOK {
			err = errors.Join(fmt.Errorf("code %d", resp.StatusCode), resp.Body.Close())
		}
		if err != nil {
			return nil, err
		}
		return resp.Body, nil
	},
	"websocket": func(ctx context.Context, agent *endpoint) (io.ReadCloser, error) {
		config, err := websocket.NewConfig("wss://"+agent.url.Host+watchPods, agent.url.String())
		if err != nil {
			return nil, err
		}
		config.TlsConfig = agent.tls
		agent.people[0].set(config.Header)
		conn, err := config.DialContext(ctx)
		if err != nil {
			return nil, err
		}
		return conn, conn.SetDeadline(time.Now().Add(timeout))
	},
}

// stream sees a pod through the agent while the request is still open. The pod has the name of the stream.
func (p *plane) stream(ctx context.Context, agent *endpoint, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	open, err := streams[name](ctx, agent)
	if err != nil {
		return "", err
	}
	defer func() { _ = open.Close() }()
	if err := p.makePod(ctx, name); err != nil {
		return "", err
	}
	for events := json.NewDecoder(open); ; {
		var event json.RawMessage
		if err := events.Decode(&event); err != nil || bytes.Contains(event, []byte(`"`+name+`"`)) {
			return string(event), err
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
func (p *plane) down(ctx context.Context, people []*Identity) (e downEvidence, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return e, err
	}
	e.Address = listener.Addr().String()
	_ = listener.Close()
	agent, err := p.agent(ctx, &url.URL{Scheme: "https", Host: e.Address}, people)
	if err != nil {
		return e, err
	}
	defer func() { _ = agent.close() }()
	begun := time.Now()
	resp, err := agent.get(ctx, podsIn(Namespace), people[0])
	if err != nil {
		return e, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	e.Code, e.Took, e.Body = resp.StatusCode, time.Since(begun), strings.ReplaceAll(string(body), p.token, hiddenToken)
	return e, err
}
