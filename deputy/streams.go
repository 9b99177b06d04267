package deputy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/internal/usage"
)

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
	if _, err := p.admin.CoreV1().Pods(Namespace).Create(ctx, &corev1.Pod{ // it never runs
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "pause", Image: "pause"}}},
	}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	for events := json.NewDecoder(open); ; {
		var event json.RawMessage
		if err := events.Decode(&event); err != nil || bytes.Contains(event, []byte(`"`+name+`"`)) {
			return string(event), err
		}
	}
}

// hiddenToken stands where the agent's token was in an answer.
const hiddenToken = "TOKEN"

// down sends through an agent whose target is not there: its answer has to come at once, and to give nothing away.
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

// revocationEvidence is what was seen while the credentials of the first person, who has a watch open, became worthless.
type revocationEvidence struct {
	Run       string    `json:"run"`
	WatchCode int       `json:"watchCode"`
	Revoked   time.Time `json:"revoked"` // when the command had done it
	// Last is the person's last request: the first watch refused after a list was, or what was let in when time was up.
	Last struct {
		At      time.Time `json:"at"`
		Code    int       `json:"code"`
		Watch   bool      `json:"watch,omitempty"`
		Refused bool      `json:"refused,omitempty"`
	} `json:"last"`
	// WatchEnded is when the watch did; none if it was open to the end.
	WatchEnded *time.Time `json:"watchEnded,omitempty"`
	// Events are those of all these requests.
	Events []json.RawMessage `json:"events,omitempty"`
}

// revoke opens a watch, takes the person's credentials away, and tries until the proxy refuses them.
func (ep *endpoint) revoke(ctx context.Context, command string) (*revocationEvidence, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e, who := &revocationEvidence{Run: newRun()}, ep.people[0]
	ask := func(query string) (*http.Response, error) {
		return ep.get(ctx, podsIn(ep.namespace)+"?fieldSelector=metadata.name%3D"+markerOf(e.Run, 0, 1)+query, who)
	}
	watch, err := ask("&watch=true&timeoutSeconds=600")
	if err != nil {
		return nil, fmt.Errorf("the watch: %w", err)
	}
	defer func() { _ = watch.Body.Close() }()
	ended := make(chan time.Time, 1)
	go func() {
		_, _ = io.Copy(io.Discard, watch.Body)
		ended <- time.Now()
	}()
	e.WatchCode = watch.StatusCode
	out, err := exec.CommandContext(ctx, "/bin/sh", "-c", command).CombinedOutput()
	if err != nil {
		return nil, &usage.Error{Problem: fmt.Sprintf("--revoke-command: %v: %.300q", err, out)}
	}
	e.Revoked = now()
	for deadline := time.Now().Add(ep.timeout); !e.Last.Refused && time.Now().Before(deadline); {
		for i, query := range []string{"", "&watch=true&timeoutSeconds=1"} {
			if e.Last.Watch = i > 0; e.Last.Watch && !e.Last.Refused {
				break
			}
			e.Last.At, e.Last.Code, e.Last.Refused = now(), 0, true
			if resp, err := ask(query); err == nil {
				e.Last.Code, e.Last.Refused = resp.StatusCode, !letIn(resp, e.Last.Watch)
			}
		}
		if !clusters.Pause(ctx, 250*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
	select {
	case at := <-ended:
		e.WatchEnded = &at
	case <-time.After(time.Until(e.Revoked.Add(ep.timeout))):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	e.Events, err = ep.trail.since(ctx, e.Run, "")
	return e, err
}

// letIn says whether an answer is an API server's to somebody who may ask: a login page may be a 200. A watch that stays
// open has nothing to tell.
func letIn(resp *http.Response, watch bool) bool {
	var got struct{ Kind, Type string }
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	err := errors.Join(json.NewDecoder(resp.Body).Decode(&got), resp.Body.Close())
	open := watch && errors.Is(err, io.EOF) && kind == "application/json"
	return resp.StatusCode/100 == 2 && (got.Kind+got.Type != "" || open)
}

// judge holds the proxy to a refusal, and to nobody else arriving. That a watch stays open is told, and nothing more: an API
// server does not end those of a token that it no longer takes either.
func (e *revocationEvidence) judge(part *Part, who *Identity, ours bool) error {
	if e.Last.At.Before(e.Revoked) || e.Revoked.Before(part.began) || e.Revoked.After(part.ended) {
		return errors.New("there is no evidence of a request after the credentials were revoked")
	}
	since := func(at time.Time) string { return at.Sub(e.Revoked).Round(time.Second).String() + " after" }
	part.Checks += 2
	if e.Last.Refused {
		part.Outcomes["refused "+since(e.Last.At)]++
	} else {
		part.fail("%s is let in %s the credentials were revoked, by a %s (code %d, --timeout)", who.Name, since(e.Last.At), map[bool]string{true: "watch", false: "list"}[e.Last.Watch], e.Last.Code)
	}
	switch {
	case e.WatchCode != http.StatusOK:
		part.fail("the watch was answered %d", e.WatchCode)
	case e.WatchEnded == nil:
		part.Outcomes["watch still open "+since(part.ended)]++
	default:
		part.Outcomes["watch ended "+since(*e.WatchEnded)]++
	}
	seen := false
	for _, raw := range e.Events {
		ev := decode(raw)
		if ev == nil || !strings.Contains(ev.RequestURI, markerOf(e.Run, 0, 1)) {
			continue
		}
		got := arriving(ev).Username
		seen = seen || got == who.Name
		if ours && e.Last.Refused && got == who.Name && decision(*ev) == "allow" && !ev.RequestReceivedTimestamp.Time.Before(e.Last.At) { // by one clock
			part.fail("%s was refused, and the API server allowed what came then", who.Name)
		}
		if got != who.Name && got != "" && got != user.Anonymous {
			part.fail("a request of %s was made as %q", who.Name, got)
		}
	}
	if !seen {
		part.Inconclusive = "the audit log has no event of the watch, by the request URI"
	}
	return nil
}
