package deputy

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/internal/seq"
)

// endpoint is who acts for people, and where they are known by which credentials.
type endpoint struct {
	url       *url.URL // below which the Kubernetes API is
	tls       *tls.Config
	people    []*Identity // the first two are me and the other
	namespace string
	timeout   time.Duration // how long a plain request may take to be answered
	trail     auditTrail
	plane     *plane // the control plane behind it, if that is ours
	// close ends whoever acts.
	close func() error
}

func (ep *endpoint) client(who *Identity) *http.Client {
	config := ep.tls.Clone()
	if who.cert != nil {
		config.Certificates = []tls.Certificate{*who.cert}
	}
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, ResponseHeaderTimeout: ep.timeout, MaxIdleConnsPerHost: 100},
		Timeout:   2 * ep.timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (ep *endpoint) get(ctx context.Context, path string, who *Identity) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ep.url.String()+path, nil)
	if err != nil {
		return nil, err
	}
	who.set(req.Header)
	req.Header.Set("Accept", "application/json")
	return ep.client(who).Do(req)
}

// cast are who is who in an attack. Nobody has no credentials.
func cast(people []*Identity) map[string]*Identity {
	all := map[string]*Identity{me: people[0], other: people[1%len(people)], nobody: {}}
	for _, p := range people {
		all[p.Name] = p
	}
	return all
}

// attacksEvidence is what was seen of the attacks, in the order of the table.
type attacksEvidence struct {
	place   `json:",inline"`
	Attacks []attackEvidence `json:"attacks"`
}

// attackEvidence is an attack as evidence shows it, what came back and what arrived.
type attackEvidence struct {
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	Sent    []string  `json:"sent"`
	Answers []reply   `json:"answers,omitempty"`
	// NotTried is why it was not: HTTP/2 is not offered, or two people have two certificates.
	NotTried string            `json:"notTried,omitempty"`
	Events   []json.RawMessage `json:"events,omitempty"`
}

// newRun is what the markers of a run begin with.
func newRun() string { return fmt.Sprintf("az%010x", rand.Uint64()>>24) }

// attack tries a table, so many at once, and reads afterwards who arrived.
func (ep *endpoint) attack(ctx context.Context, table []attack, atOnce int) (*attacksEvidence, error) {
	s := scene{place: place{newRun(), ep.url.Host, strings.TrimRight(ep.url.Path, "/"), ep.namespace}, People: cast(ep.people)}
	e := &attacksEvidence{s.place, make([]attackEvidence, len(table))}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for n, a := range table {
		group.Go(func() error {
			one := &e.Attacks[n]
			one.Began, one.Sent = now(), s.sent(n, a)
			ep.try(groupCtx, s, n, a, one)
			one.Ended = time.Now()
			return groupCtx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	events, err := ep.trail.since(ctx, e.Run, podsIn(ep.namespace))
	if err != nil {
		return nil, err
	}
	e.share(events)
	return e, nil
}

func (ep *endpoint) try(ctx context.Context, s scene, n int, a attack, one *attackEvidence) {
	cert := s.People[a.Requests[0].Who].cert
	if slices.ContainsFunc(a.Requests, func(r rawAttack) bool { return s.People[r.Who].cert != cert }) {
		one.NotTried = twoCertificates
		return
	}
	if p := s.People[me]; a.Spelt != "" && (len(p.headers) == 0 || p.headers[0].value != p.Name || p.spelt(a.Spelt).Name == p.Name) {
		one.NotTried = notByName
		return
	}
	requests := s.requests(n, a)
	if a.Protocol != protocol2 {
		one.Answers = overHTTP1(func(from net.Addr) (net.Conn, error) {
			return dial(ctx, ep.url, ep.tls, cert, "http/1.1", a.wait(), from)
		}, requests, a)
		return
	}
	conn, err := dial(ctx, ep.url, ep.tls, cert, "h2", a.wait(), nil)
	if err == nil {
		one.Answers, err = overHTTP2(conn, ep.url.Scheme, requests, a)
		_ = conn.Close()
	}
	if errors.Is(err, errNotOffered) {
		one.NotTried = errNotOffered.Error()
	} else if err != nil {
		one.Answers = []reply{{Problem: err.Error()}}
	}
}

// Why an attack is not tried, besides errNotOffered.
const (
	twoCertificates = "people with certificates have connections of their own"
	notByName       = "people are not known by a header with their name"
)

// untried says whether an attack can be one that was not tried, for its reason: nothing came of it, nor of any like it.
func (e *attacksEvidence) untried(table []attack, n int) bool {
	who, is := func(r rawAttack) string { return r.Who }, table[n]
	like, known := map[string]func(attack) bool{
		twoCertificates: func(a attack) bool {
			return slices.Equal(seq.Map(a.Requests, who), seq.Map(is.Requests, who)) && slices.ContainsFunc(a.Requests, func(r rawAttack) bool { return r.Who != a.Requests[0].Who })
		},
		notByName:             func(a attack) bool { return a.Spelt != "" && a.Spelt == is.Spelt },
		errNotOffered.Error(): func(a attack) bool { return a.Protocol == protocol2 },
	}[e.Attacks[n].NotTried]
	for i, one := range e.Attacks {
		if known && like(table[i]) && (one.NotTried == "" || len(one.Answers)+len(one.Events) > 0) {
			return false
		}
	}
	return known && like(is)
}

// share gives each attack the events with its marker, or, where it was answered and no marker arrived, those of its time.
func (e *attacksEvidence) share(events []json.RawMessage) {
	var unmarked []json.RawMessage
	var decoded []*auditv1.Event // once: they are thousands, of up to 100 KB
	for _, raw := range events {
		if _, rest, marked := strings.Cut(string(raw), e.Run+"-"); !marked {
			if ev := decode(raw); ev != nil {
				unmarked, decoded = append(unmarked, raw), append(decoded, ev)
			}
		} else if n, err := strconv.ParseUint(rest[:min(6, len(rest))], 10, 32); err == nil && int(n) < len(e.Attacks) {
			e.Attacks[n].Events = append(e.Attacks[n].Events, raw)
		}
	}
	for i := range e.Attacks {
		a := &e.Attacks[i]
		give := func(belongs func(*auditv1.Event) bool) {
			for n, ev := range decoded {
				if belongs(ev) {
					a.Events = append(a.Events, unmarked[n])
				}
			}
		}
		give(func(ev *auditv1.Event) bool { return a.tells(ev) > 0 })
		if len(a.Events) == 0 && slices.ContainsFunc(a.Answers, func(r reply) bool { return r.Code/100 == 2 }) {
			give(a.during)
		}
	}
}

func (a *attackEvidence) during(e *auditv1.Event) bool {
	at := e.RequestReceivedTimestamp.Time
	return !at.Before(a.Began) && !at.After(a.Ended)
}

// decode reads an event that says who arrived: at the stage RequestReceived nobody is impersonated yet.
func decode(raw json.RawMessage) *auditv1.Event {
	var e auditv1.Event
	if json.Unmarshal(raw, &e) != nil || e.AuditID == "" || e.Stage == auditv1.StageRequestReceived {
		return nil
	}
	return &e
}

var digits = regexp.MustCompile(`^[0-9]+`)

// found says by what an event belongs to the marker of a run.
func (a *attackEvidence) found(e *auditv1.Event, marker string) (by, request string) {
	for _, in := range [][2]string{{"request URI", e.RequestURI}, {"user agent", e.UserAgent}, {"audit ID", string(e.AuditID)}} {
		if _, rest, ok := strings.Cut(in[1], marker); ok {
			by = cmp.Or(by, in[0])
			if request = digits.FindString(rest); request != "" {
				return in[0], request
			}
		}
	}
	if by != "" {
		return by, ""
	}
	if i := a.tells(e); i > 0 {
		return "audit ID", strconv.Itoa(i)
	}
	if a.during(e) {
		return byTime, "1"
	}
	return "", ""
}

// tells is the number of the answer with the audit ID of an event, or 0.
func (a *attackEvidence) tells(e *auditv1.Event) int {
	return 1 + slices.IndexFunc(a.Answers, func(r reply) bool { return r.AuditID == string(e.AuditID) })
}

// auditTrail is an API server's audit log that is looked at while it grows.
type auditTrail struct {
	// send sends a request with a marker past the proxy, look finds events in which one of the texts stands.
	send    func(ctx context.Context, marker string) error
	look    func(texts ...string) ([]json.RawMessage, error)
	timeout time.Duration // how long an event may take to get into the log
}

// settle waits until what was sent before is in the log: a request past the proxy is.
func (t *auditTrail) settle(ctx context.Context, marker string) error {
	if err := t.send(ctx, marker); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, t.timeout, true, func(context.Context) (bool, error) {
		events, err := t.look(marker)
		return len(events) > 0, err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("a request to the cluster of the kubeconfig did not get into the audit log within %s: the log is of another cluster, or its policy leaves out lists of pods; nothing is judged", t.timeout)
	}
	return err
}

// since are the events of a run, and those that name a path.
func (t *auditTrail) since(ctx context.Context, run, path string) ([]json.RawMessage, error) {
	for _, last := range []string{"-end", "-over"} { // an event is written after its answer: the second is behind those
		if err := t.settle(ctx, run+last); err != nil {
			return nil, err
		}
		if !clusters.Pause(ctx, 250*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
	return t.look(run, cmp.Or(path, run))
}
