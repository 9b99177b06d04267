package deputy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// flowSchema is the header with the UID of a flow schema.
const flowSchema = "X-Kubernetes-Pf-Flowschema-Uid"

type reply struct {
	Code int `json:"code,omitempty"`
	// AuditID is the one that the API server gave its answer, empty if it is not one of its own.
	AuditID string `json:"auditID,omitempty"`
	// Flow is the flow schema of the API server's priority and fairness, which no answer of a proxy has.
	Flow    string `json:"flowSchemaUID,omitempty"`
	Problem string `json:"problem,omitempty"`
	Kind    string `json:"kind,omitempty"` // the kind of object that was answered, over HTTP/1.1
}

var errNotOffered = errors.New("HTTP/2 is not offered")

// dial connects, with a client certificate and from an address if there is one.
func dial(ctx context.Context, to *url.URL, config *tls.Config, cert *tls.Certificate, protocol string, wait time.Duration, from net.Addr) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	dialer := &net.Dialer{LocalAddr: from}
	if to.Scheme != "https" {
		return dialer.DialContext(ctx, "tcp", to.Host)
	}
	config = config.Clone()
	if config.NextProtos = []string{protocol}; cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	conn, err := (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", to.Host)
	if err != nil && protocol == http2.NextProtoTLS && strings.Contains(err.Error(), "no application protocol") {
		err = errNotOffered
	}
	if err == nil && protocol == http2.NextProtoTLS && conn.(*tls.Conn).ConnectionState().NegotiatedProtocol != protocol {
		err = errors.Join(errNotOffered, conn.Close())
	}
	return conn, err
}

// overHTTP1 writes requests to one connection, or to the next where one hangs up, and reads their answers. Client
// libraries refuse to write most of these.
func overHTTP1(connect func(from net.Addr) (net.Conn, error), requests []rawAttack, a attack) []reply {
	out := make([]reply, len(requests))
	var conn net.Conn
	var reader *bufio.Reader
	done := func() {
		if conn != nil {
			_ = conn.Close()
			conn = nil
		}
	}
	defer done()
	for i, r := range requests {
		var from net.Addr
		var err error
		var ended bool
		if r.SamePort && conn != nil {
			from = conn.LocalAddr()
			reset(conn)
			conn = nil
		}
		if conn == nil {
			if conn, err = connect(from); err != nil {
				out[i].Problem = err.Error()
				continue
			}
			reader = bufio.NewReader(conn)
		}
		_ = conn.SetDeadline(time.Now().Add(a.wait()))
		if _, err = io.WriteString(conn, r.text()); err == nil && !a.Pipelined && !r.HangUp {
			ended, err = out[i].read(reader, r.Method)
		}
		if err != nil {
			out[i].Problem = err.Error()
		}
		if err != nil || ended || r.HangUp {
			done()
		}
	}
	for i := range requests {
		if !a.Pipelined || conn == nil {
			break
		}
		if _, err := out[i].read(reader, requests[i].Method); err != nil {
			out[i].Problem = err.Error()
			break
		}
	}
	return out
}

// read reads the answer to a request, and says whether the connection ends with it.
func (r *reply) read(from *bufio.Reader, method string) (ended bool, err error) {
	resp, err := http.ReadResponse(from, &http.Request{Method: method})
	if err != nil {
		return false, err
	}
	r.Code, r.AuditID, r.Flow = resp.StatusCode, resp.Header.Get("Audit-Id"), resp.Header.Get(flowSchema)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return false, errors.New("the connection was upgraded")
	}
	var object struct{ Kind string }
	body, err := io.ReadAll(resp.Body)
	_ = json.Unmarshal(body, &object)
	r.Kind = object.Kind
	return resp.Close, errors.Join(err, resp.Body.Close())
}

// reset ends a connection in such a way that its port can be used at once.
func reset(conn net.Conn) {
	raw := conn
	if over, ok := conn.(*tls.Conn); ok {
		raw = over.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = raw.Close()
}

// overHTTP2 opens a stream for each request, all at once if pipelined, and reads the answers.
func overHTTP2(conn net.Conn, scheme string, requests []rawAttack, a attack) ([]reply, error) {
	_ = conn.SetDeadline(time.Now().Add(a.wait()))
	out := make([]reply, len(requests))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, err
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(); err != nil {
		return nil, err
	}
	if _, err := framer.ReadFrame(); err != nil { // its settings: without TLS nobody has said that it speaks HTTP/2
		return nil, errNotOffered
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	open := 0
	for i, r := range requests {
		err := writeStream(framer, encoder, &block, uint32(2*i+1), scheme, r)
		open++
		for err == nil && open > 0 && (!a.Pipelined || i == len(requests)-1) {
			var ended int
			ended, err = nextAnswer(framer, out)
			open -= ended
		}
		if err != nil {
			out[i].Problem = err.Error()
			break
		}
	}
	return out, nil
}

func writeStream(framer *http2.Framer, encoder *hpack.Encoder, block *bytes.Buffer, id uint32, scheme string, r rawAttack) error {
	field := func(name, value string) { _ = encoder.WriteField(hpack.HeaderField{Name: name, Value: value}) }
	header := func(lines []string, end bool) error {
		for _, l := range strings.Split(strings.Join(lines, "\r\n"), "\r\n") {
			if name, value, _ := strings.Cut(l, ":"); name != "host" && name != "" {
				field(name, strings.TrimSpace(value))
			}
		}
		defer block.Reset()
		return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
	}
	host := strings.TrimPrefix(r.Lines[0], "host: ")
	for _, p := range [][2]string{{":method", r.Method}, {":scheme", scheme}, {":authority", host}, {":path", r.Target}} {
		field(p[0], p[1])
	}
	last := len(r.Trailers) == 0
	if err := header(r.Lines, last && r.Body == ""); err != nil || last && r.Body == "" {
		return err
	}
	if err := framer.WriteData(id, last, []byte(r.Body)); err != nil || last {
		return err
	}
	return header(r.Trailers, true)
}

// nextAnswer reads a frame, and says how many streams it ended.
func nextAnswer(framer *http2.Framer, out []reply) (ended int, err error) {
	frame, err := framer.ReadFrame()
	if err != nil {
		return 0, err
	}
	i := int(frame.Header().StreamID) / 2
	if i >= len(out) {
		return 0, nil
	}
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		_, _ = fmt.Sscan(f.PseudoValue("status"), &out[i].Code)
		for _, field := range f.RegularFields() {
			switch http.CanonicalHeaderKey(field.Name) {
			case "Audit-Id":
				out[i].AuditID = field.Value
			case flowSchema:
				out[i].Flow = field.Value
			}
		}
	case *http2.RSTStreamFrame:
		out[i].Problem = "the stream was reset: " + f.ErrCode.String()
		return 1, nil
	case *http2.GoAwayFrame:
		return 0, fmt.Errorf("the connection was ended: %s", f.ErrCode)
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return 0, framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		return 0, framer.WritePing(true, f.Data)
	}
	if frame.Header().Type != http2.FramePushPromise && frame.Header().Flags.Has(http2.FlagDataEndStream) && frame.Header().StreamID != 0 {
		return 1, nil
	}
	return 0, nil
}
