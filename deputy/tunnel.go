package deputy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tunnelEvidence is what was seen of streams through an agent, and of an agent without its target.
type tunnelEvidence struct {
	// Streams has, by name, what came through while the request was open, or why nothing did.
	Streams map[string]streamEvidence `json:"streams"`
	Down    downEvidence              `json:"down"`
}

type streamEvidence struct {
	Event   string `json:"seen,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// downEvidence is the answer of an agent at whose target address nothing listens. TOKEN replaces the agent's token.
type downEvidence struct {
	Address string        `json:"address"`
	Code    int           `json:"code"`
	Took    time.Duration `json:"took"`
	Body    string        `json:"body"`
}

// hiddenToken replaces the agent's token in an answer.
const hiddenToken = "TOKEN"

// downLimit is how long an agent may take to say that its target is down.
const downLimit = 5 * time.Second

// observeTunnel opens streams through the agent, and then takes its target away.
func (p *plane) observeTunnel(ctx context.Context, agent *endpoint) (e *tunnelEvidence, err error) {
	e = &tunnelEvidence{Streams: map[string]streamEvidence{}}
	for name := range streams {
		event, err := p.stream(ctx, agent, name)
		if e.Streams[name] = (streamEvidence{Event: event}); err != nil {
			e.Streams[name] = streamEvidence{Problem: err.Error()}
		}
	}
	e.Down, err = p.takeDown(ctx, agent.people)
	return e, err
}

// judge demands that each stream shows what happens while it is open, and that a target that is down is reported.
func (e *tunnelEvidence) judge(out *judgement) {
	for _, name := range slices.Sorted(maps.Keys(streams)) {
		out.checks++
		if stream := e.Streams[name]; !stream.showsPod(name) {
			out.fail(
				name,
				"a pod is seen through the tunnel as soon as it is made",
				"%s",
				cmp.Or(stream.Problem, fmt.Sprintf("what came first is %.100q", stream.Event)),
			)
			continue
		}
		out.outcomes["streamed"]++
	}
	out.checks++
	if d := e.Down; !d.isReported() {
		out.fail(
			"a target that is down",
			"it is reported at once, without an address or a token",
			"code %d after %s: %.200s",
			d.Code,
			d.Took,
			d.Body,
		)
		return
	}
	out.outcomes["down, and said so"]++
}

// showsPod reports whether the pod with the name of the stream came through.
func (s streamEvidence) showsPod(name string) bool {
	return s.Problem == "" && strings.Contains(s.Event, `"ADDED"`) && strings.Contains(s.Event, `"name":"`+name+`"`)
}

// isReported reports whether the agent said at once that its target is down, and revealed neither the address nor the
// token.
func (d downEvidence) isReported() bool {
	isInTime := d.Took > 0 && d.Took <= downLimit
	givesAway := d.Address == "" || strings.Contains(d.Body, d.Address) || strings.Contains(d.Body, hiddenToken)
	return d.Code == http.StatusBadGateway && isInTime && !givesAway
}

// watchPods is the path of a watch of the users' pods.
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
		config, err := websocket.NewConfig("wss://"+agent.url.Host+agent.url.Path+watchPods, agent.url.String())
		if err != nil {
			return nil, err
		}
		config.TlsConfig = agent.tls
		agent.people[0].addTo(config.Header)
		conn, err := config.DialContext(ctx)
		if err != nil {
			return nil, err
		}
		return conn, conn.SetDeadline(time.Now().Add(timeout))
	},
}

// stream receives a pod through the agent while the request is still open. The pod has the name of the stream.
func (p *plane) stream(ctx context.Context, agent *endpoint, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	open, err := streams[name](ctx, agent)
	if err != nil {
		return "", err
	}
	defer func() { _ = open.Close() }()
	_, err = p.admin.CoreV1().Pods(Namespace).Create(ctx, &corev1.Pod{ // the pod never runs
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(bool),
			Containers:                   []corev1.Container{{Name: "pause", Image: "pause"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	for events := json.NewDecoder(open); ; {
		var event json.RawMessage
		if err := events.Decode(&event); err != nil || bytes.Contains(event, []byte(`"`+name+`"`)) {
			return string(event), err
		}
	}
}

// takeDown sends a request through an agent whose target is not there. The answer has to come at once, and must reveal
// nothing.
func (p *plane) takeDown(ctx context.Context, people []*Identity) (e downEvidence, err error) {
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
