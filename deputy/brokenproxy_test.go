package deputy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// brokenProxy is wrong in the ways of its faults, which depend on the kind of attack that a request belongs to. It
// parses requests itself, because an HTTP library would refuse half of the attacks.
type brokenProxy struct {
	plane  *plane
	people []*Identity
	table  []attack
	faults map[string][]brokenFault

	mu        sync.Mutex
	ports     map[string]string // persons by the ports of their connections
	programs  map[string]string
	leftovers map[int]string // the person of the last connection of an attack that ended
	answers   map[string]brokenAnswer
	// fired has the faults that made a request of an attack wrongly, by the name of the attack.
	fired map[string]string
}

type brokenAnswer struct {
	code    int
	auditID string
	body    []byte
}

func newBrokenProxy(p *plane, people []*Identity, table []attack, faults map[string][]brokenFault) *brokenProxy {
	return &brokenProxy{
		plane: p, people: people, table: table, faults: faults, ports: map[string]string{}, programs: map[string]string{},
		leftovers: map[int]string{}, answers: map[string]brokenAnswer{}, fired: map[string]string{},
	}
}

// listen serves until the test ends.
func (p *brokenProxy) listen(t *testing.T) *url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return &url.URL{Scheme: "http", Host: l.Addr().String()}
}

func (p *brokenProxy) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	memory := &brokenConn{}
	if begin, err := reader.Peek(len(http2.ClientPreface)); err == nil && string(begin) == http2.ClientPreface {
		_, _ = reader.Discard(len(begin))
		p.serveHTTP2(conn, reader, memory)
		return
	}
	p.serveHTTP1(conn, reader, memory)
}

// idle is how long the proxy waits for more of a request whose header has arrived.
const idle = 60 * time.Millisecond

func (p *brokenProxy) serveHTTP1(conn net.Conn, reader *bufio.Reader, memory *brokenConn) {
	all, buffer := "", make([]byte, 1<<20)
	var last *brokenRequest
	for {
		head, rest, isComplete := strings.Cut(all, "\r\n\r\n")
		wait := time.Minute
		if isComplete {
			wait = idle
		}
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		n, err := reader.Read(buffer)
		all += string(buffer[:n])
		isIdle := err != nil && isComplete && n == 0
		switch {
		case isIdle:
			last = p.answerHTTP1(conn, memory, head, rest, &all)
			if last == nil {
				return
			}
		case err != nil:
			p.end(memory, all, last)
			return
		}
	}
}

// answerHTTP1 answers the request that has arrived, or the first of several in a pipeline. It returns nil when the
// connection ends.
func (p *brokenProxy) answerHTTP1(conn net.Conn, memory *brokenConn, head, rest string, all *string) *brokenRequest {
	r := readBroken(head, rest)
	*all = ""
	isPipelined := r.marker != "" && p.table[r.attack].Pipelined
	if isPipelined {
		r.rest, *all = "", rest
	}
	r.conn, r.port = memory, conn.RemoteAddr().String()
	got := p.answer(r)
	_, err := fmt.Fprintf(
		conn,
		"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nAudit-Id: %s\r\nContent-Length: %d\r\n\r\n",
		got.code,
		http.StatusText(got.code),
		got.auditID,
		len(got.body),
	)
	if err == nil && r.method != http.MethodHead {
		_, err = conn.Write(got.body)
	}
	isLast := err != nil || r.get("Connection") == "close"
	if isLast {
		p.end(memory, "", r)
		return nil
	}
	return r
}

// end remembers whose connection ends, and what was left of a header.
func (p *brokenProxy) end(memory *brokenConn, left string, last *brokenRequest) {
	cut := readBroken(left, "")
	p.mu.Lock()
	defer p.mu.Unlock()
	if cut.marker != "" {
		p.leftovers[cut.attack] = cut.session()
	} else if last != nil {
		p.leftovers[last.attack] = memory.person
	}
}

func (p *brokenProxy) serveHTTP2(conn net.Conn, reader io.Reader, memory *brokenConn) {
	framer := http2.NewFramer(conn, reader)
	if err := framer.WriteSettings(); err != nil {
		return
	}
	open := map[uint32]*strings.Builder{}
	bodies := map[uint32]string{}
	var fields []hpack.HeaderField
	decoder := hpack.NewDecoder(4096, func(f hpack.HeaderField) { fields = append(fields, f) })
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		id := frame.Header().StreamID
		switch f := frame.(type) {
		case *http2.HeadersFrame:
			fields = nil
			_, _ = decoder.Write(f.HeaderBlockFragment())
			if open[id] == nil {
				open[id] = &strings.Builder{}
				writeHead(open[id], fields)
			} else {
				bodies[id] += joinFields(fields)
			}
		case *http2.DataFrame:
			bodies[id] += string(f.Data())
		}
		isEnded := endsStream(frame.Header()) && open[id] != nil
		if !isEnded {
			continue
		}
		r := readBroken(open[id].String(), bodies[id])
		r.conn, r.port, r.http2 = memory, conn.RemoteAddr().String(), true
		got := p.answer(r)
		block.Reset()
		_ = encoder.WriteField(hpack.HeaderField{Name: ":status", Value: fmt.Sprint(got.code)})
		_ = encoder.WriteField(hpack.HeaderField{Name: "audit-id", Value: got.auditID})
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	}
}

// writeHead writes HTTP/2 fields as a proxy that uses HTTP/1.1 behind it does. It does not check what they contain.
func writeHead(out *strings.Builder, fields []hpack.HeaderField) {
	method, path := "", ""
	for _, f := range fields {
		switch f.Name {
		case ":method":
			method = f.Value
		case ":path":
			path = f.Value
		}
	}
	fmt.Fprintf(out, "%s %s HTTP/1.1\r\n%s", method, path, joinFields(fields))
}

func joinFields(fields []hpack.HeaderField) string {
	var out strings.Builder
	for _, f := range fields {
		if !strings.HasPrefix(f.Name, ":") {
			fmt.Fprintf(&out, "%s: %s\r\n", f.Name, f.Value)
		}
	}
	return out.String()
}

// answer makes a request at the API server, as the person or as a fault says.
func (p *brokenProxy) answer(r *brokenRequest) brokenAnswer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.marker == "" {
		return brokenAnswer{code: http.StatusBadRequest}
	}
	attack := p.table[r.attack]
	as, isWrong := brokenArrival{user: r.session()}, false
	for _, fault := range p.faults[attack.kind] {
		if as, isWrong = fault.wrong(p, r); isWrong {
			p.fired[attack.Name] = fault.name
			break
		}
		as = brokenArrival{user: r.session()}
	}
	p.remember(r)
	isRefused := !isWrong &&
		(r.session() == "" || r.malformed)
	switch {
	case as.answered:
		return p.answers[r.target]
	case isRefused:
		return brokenAnswer{code: http.StatusUnauthorized}
	}
	got := p.forward(r, as)
	p.answers[r.target] = got
	return got
}

// remember records who sent a request, for the next one.
func (p *brokenProxy) remember(r *brokenRequest) {
	who := r.session()
	if who == "" {
		return
	}
	if r.conn.person == "" {
		r.conn.person = who
	}
	p.ports[r.port] = who
	if program := r.get("User-Agent"); !strings.Contains(program, r.marker) {
		p.programs[program] = who
	}
}

// forward lists pods at the API server.
func (p *brokenProxy) forward(r *brokenRequest, as brokenArrival) brokenAnswer {
	marker := r.marker
	if as.smuggled {
		marker = r.smuggled
	}
	for range as.reviews {
		_, _ = p.send(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", "", brokenArrival{itself: true})
	}
	if as.user == "" && !as.itself {
		return brokenAnswer{code: http.StatusUnauthorized}
	}
	got, err := p.send(http.MethodGet, podsIn(Namespace)+queryOf(marker), marker, as)
	if err != nil {
		return brokenAnswer{code: http.StatusBadGateway}
	}
	return got
}

func (p *brokenProxy) send(method, path, marker string, as brokenArrival) (brokenAnswer, error) {
	req, err := http.NewRequest(method, p.plane.url.String()+path, strings.NewReader(""))
	if err != nil {
		return brokenAnswer{}, err
	}
	if marker != "" {
		req.Header.Set("User-Agent", marker)
		req.Header.Set("Audit-Id", marker)
	}
	req.Header.Set("Authorization", "Bearer "+p.plane.token)
	if as.authorization != "" {
		req.Header.Set("Authorization", as.authorization)
	}
	if !as.itself {
		req.Header.Set("Impersonate-User", as.user)
		req.Header["Impersonate-Group"] = as.groups
		if as.uid != "" {
			req.Header.Set("Impersonate-Uid", as.uid)
		}
		req.Header["Impersonate-Extra-Scopes"] = as.extra
	}
	resp, err := p.plane.transport.RoundTrip(req)
	if err != nil {
		return brokenAnswer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return brokenAnswer{resp.StatusCode, resp.Header.Get("Audit-Id"), body}, err
}

// uncaughtAttacks are the attacks that no fault of the broken proxy lets through, with the reason. There may be no
// others.
var uncaughtAttacks = map[string]string{}

// TestEachAttackIsCaught sends every attack to a proxy that is broken in exactly the way at which its kind is aimed, in
// front of a real API server. Each attack has to be caught. No fault makes a request without tricks wrongly.
func TestEachAttackIsCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	t.Parallel() // it mostly waits
	ctx := context.Background()
	people := []*Identity{
		{Name: "alice@corp", headers: []header{{sessionHeader, "alice@corp"}, {"Cookie", "session=head.claims-of-a.signature-a"}}},
		{Name: "bob@corp", headers: []header{{sessionHeader, "bob@corp"}, {"Cookie", "session=head.claims-of-b.signature-b"}}},
	}
	behind, err := startPlane(ctx, target(t), slices.Concat(userGrants(people, 1), proxyGrants(nil, false)), []string{Namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = behind.Stop() })
	table := attacksOf(isForOneCluster)
	broken := newBrokenProxy(behind, people, table, faultsOfKinds)
	checkControlsAreRight(t, broken)
	ep := &endpoint{url: broken.listen(t), people: people, namespace: Namespace, timeout: timeout, log: behind.auditLog(), plane: behind}
	e, err := ep.sendAttacks(ctx, table, 1)
	if err != nil {
		t.Fatal(err)
	}
	caught := map[string]bool{}
	j := newAttackJudge(e, table, people, proxyName)
	for n, a := range table {
		out := newJudgement()
		if err := j.judgeAttack(out, a, &e.Attacks[n], markerOf(e.Run, n, "")); err != nil {
			t.Fatal(err)
		}
		caught[a.Name] = len(out.failures) > 0
		why, isExempt := uncaughtAttacks[a.Name]
		isCaught := caught[a.Name]
		switch {
		case a.isControl() && isCaught:
			t.Errorf("%s: a request without tricks is taken for an attack: %q", a.Name, out.failures)
		case a.isControl():
		case isExempt && isCaught:
			t.Errorf("%s (%s) is caught, and listed as one that is not: %s", a.Name, a.kind, why)
		case !isExempt && !isCaught:
			t.Errorf("%s (%s) is not caught by the fault made for it: %q; %+v", a.Name, a.kind, broken.fired[a.Name], e.Attacks[n].Answers)
		case isCaught && broken.fired[a.Name] == "":
			t.Errorf("%s (%s) is caught without a fault: %q", a.Name, a.kind, out.failures)
		}
	}
	t.Logf("%d of %d attacks are caught", len(broken.fired), len(table))
	t.Run("controls", func(t *testing.T) { tryControls(ctx, t, behind, people) })
}

// tryControls sends the requests that have to arrive to a proxy that refuses everybody, and to one that impersonates
// nobody.
func tryControls(ctx context.Context, t *testing.T, behind *plane, people []*Identity) {
	t.Helper()
	table := attacksOf(func(kind string) bool { return kind == controlsKind })
	for name, as := range map[string]brokenArrival{"refuses everybody": {}, "impersonates nobody": {itself: true}} {
		fault := brokenFault{name, func(*brokenProxy, *brokenRequest) (brokenArrival, bool) { return as, true }}
		broken := newBrokenProxy(behind, people, table, map[string][]brokenFault{controlsKind: {fault}})
		ep := &endpoint{
			url:       broken.listen(t),
			people:    people,
			namespace: Namespace,
			timeout:   timeout,
			log:       behind.auditLog(),
			plane:     behind,
		}
		e, err := ep.sendAttacks(ctx, table, 1)
		if err != nil {
			t.Fatal(err)
		}
		out := newJudgement()
		judgeInto(t, out, e, table, people, proxyName, false)
		for _, a := range table {
			if a.isControl() && !finds(out, a.Name+": ") {
				t.Errorf("%s: %s does not fail: %q", name, a.Name, out.failures)
			}
		}
	}
}

// checkControlsAreRight checks that no fault makes a plain request of a person wrongly.
func checkControlsAreRight(t *testing.T, p *brokenProxy) {
	t.Helper()
	s := requestWriter{destination: destination{Run: newRun(), Host: "localhost:1", Namespace: Namespace}, People: senders(p.people)}
	for n, a := range p.table[:2] {
		request := s.writeRequests(n, a)[0]
		head, rest, _ := strings.Cut(request.wireText(), "\r\n\r\n")
		for kind, faults := range p.faults {
			for _, fault := range faults {
				r := readBroken(head, rest)
				r.conn = &brokenConn{}
				if as, isWrong := fault.wrong(p, r); isWrong {
					t.Errorf("%s: %s: %q is made as %+v", kind, fault.name, a.Name, as)
				}
			}
		}
	}
}
