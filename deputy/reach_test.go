package deputy

import (
	"bufio"
	"bytes"
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

// openSubject accepts everything, and records what it was sent: the bytes of each connection, and the fields of HTTP/2.
type openSubject struct {
	listener net.Listener

	mu    sync.Mutex
	bytes bytes.Buffer
}

func startOpenSubject(t *testing.T) *openSubject {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &openSubject{listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *openSubject) keep(text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes.Write(text)
}

func (s *openSubject) received() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes.String()
}

// serve answers every complete request with success, by its marker. If a request expects to be told to continue, it
// answers after that.
func (s *openSubject) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	if begin, err := reader.Peek(len(http2.ClientPreface)); err == nil && string(begin) == http2.ClientPreface {
		_, _ = reader.Discard(len(begin))
		s.serveHTTP2(conn, reader)
		return
	}
	answered, buffer, all := 0, make([]byte, 64<<10), ""
	for {
		n, err := reader.Read(buffer)
		s.keep(buffer[:n])
		if all += string(buffer[:n]); err != nil {
			return
		}
		for ; answered < strings.Count(all, "Audit-Id: "); answered++ {
			if strings.Contains(all, "Expect: 100-continue") {
				_, _ = io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n")
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}
}

func (s *openSubject) serveHTTP2(conn net.Conn, reader io.Reader) {
	framer := http2.NewFramer(conn, reader)
	if err := framer.WriteSettings(); err != nil {
		return
	}
	decoder := hpack.NewDecoder(4096, func(f hpack.HeaderField) { s.keep([]byte(f.Name + ": " + f.Value + "\r\n")) })
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.HeadersFrame:
			_, _ = decoder.Write(f.HeaderBlockFragment())
		case *http2.DataFrame:
			s.keep(f.Data())
		}
		if endsStream(frame.Header()) && frame.Header().Type != http2.FrameSettings {
			block.Reset()
			_ = encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			_ = framer.WriteHeaders(
				http2.HeadersFrameParam{StreamID: frame.Header().StreamID, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true},
			)
		}
	}
}

// TestAttacksReachTheSubject sends every attack to a subject that accepts everything. The subject must get each request
// to its last byte, and what counts as the answer must be the answer to the whole request. An attack that ends before
// the subject has it would test nothing.
func TestAttacksReachTheSubject(t *testing.T) {
	table := attacksOf(func(string) bool { return true })
	people := []*Identity{
		{Name: "alice", headers: []header{{sessionHeader, "alice"}, {"Authorization", "Bearer " + forgeToken("alice")}}},
		{Name: "bob", headers: []header{{sessionHeader, "bob"}, {"Authorization", "Bearer " + forgeToken("bob")}}},
	}
	for n, a := range table {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			subject := startOpenSubject(t)
			ep := &endpoint{
				url:       &url.URL{Scheme: "http", Host: subject.listener.Addr().String()},
				people:    people,
				namespace: Namespace,
				timeout:   timeout,
				cluster:   "east",
			}
			ep.url.Path, ep.other = "/clusters/east", &secondCluster{name: "west", prefix: "/clusters/west"}
			s := requestWriter{destination: ep.newDestination(), People: senders(people)}
			seen := &attackEvidence{}
			ep.sendAttack(t.Context(), s, n, a, seen)
			if seen.NotTried != "" {
				t.Fatalf("not tried: %s", seen.NotTried)
			}
			for i, r := range s.writeRequests(n, a) {
				if why := findUnsent(subject, a, r); why != "" {
					t.Errorf("request %d: %s", i+1, why)
				}
				if !r.HangUp && seen.Answers[i].Code != http.StatusOK {
					t.Errorf("request %d: the answer is %+v", i+1, seen.Answers[i])
				}
			}
		})
	}
}

// findUnsent returns what the subject still lacks of a request after a while, or "" if it has all of it.
func findUnsent(subject *openSubject, a attack, r rawRequest) (missing string) {
	parts := []string{r.wireText()}
	if a.Protocol == protocol2 {
		parts = slices.Concat(splitLines(r.Lines), splitLines(r.Trailers), []string{":path: " + r.Target, r.Body})
	}
	for range 100 {
		missing = ""
		for _, part := range parts {
			if !strings.Contains(subject.received(), part) {
				missing = fmt.Sprintf("the subject does not have %.200q", part)
			}
		}
		if missing == "" {
			return ""
		}
		time.Sleep(20 * time.Millisecond)
	}
	return missing
}

// splitLines returns header lines as the fields that arrive over HTTP/2.
func splitLines(lines []string) (fields []string) {
	for _, line := range strings.Split(strings.Join(lines, "\r\n"), "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if name != "" && name != "host" {
			fields = append(fields, name+": "+strings.TrimSpace(value))
		}
	}
	return fields
}

// TestChangedSecretsReachTheComparison checks that each way to change a secret succeeds if a subject compares secrets
// in exactly that wrong way, and fails if it compares them correctly. The scheme and the name of the cookie stay the
// same.
func TestChangedSecretsReachTheComparison(t *testing.T) {
	secret := forgeToken("alice") + "x"
	id := &Identity{Name: "alice", headers: []header{{"Authorization", "Bearer " + secret}, {"Cookie", "session=" + secret}}}
	for name, c := range map[string]struct {
		change func(string) string
		wrong  func(sent string) bool
	}{
		"in upper case":       {foldCase, func(sent string) bool { return strings.EqualFold(sent, secret) }},
		"cut in half":         {cutInHalf, func(sent string) bool { return strings.HasPrefix(secret, sent) }},
		"without a signature": {cutSignature, func(sent string) bool { return sent == secret[:strings.LastIndex(secret, ".")+1] }},
		"nearly the same": {changeLetter, func(sent string) bool {
			return len(sent) == len(secret) && sent[:len(sent)-6] == secret[:len(secret)-6]
		}},
	} {
		for _, h := range id.changeSecrets(c.change).headers {
			before, sent := h.splitSecret()
			isCompared := slices.Contains([]string{"Bearer ", "session="}, before) && c.wrong(sent)
			if !isCompared || sent == secret {
				t.Errorf("%s: %s: %s%s does not get to the comparison", name, h.name, before, sent)
			}
		}
	}
}
