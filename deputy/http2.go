package deputy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// sendOverHTTP2 opens a stream for each request and reads the answers. If the attack is pipelined, it opens all streams
// at once.
func sendOverHTTP2(conn net.Conn, scheme string, requests []rawRequest, a attack) ([]reply, error) {
	_ = conn.SetDeadline(time.Now().Add(a.answerTimeout()))
	out := make([]reply, len(requests))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, err
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(); err != nil {
		return nil, err
	}
	if _, err := framer.ReadFrame(); err != nil { // the settings; without TLS nothing else shows that the server speaks HTTP/2
		return nil, errNotOffered
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	open := 0
	for i, r := range requests {
		err := writeStream(framer, encoder, &block, uint32(2*i+1), scheme, r)
		open++
		readsNow := i == len(requests)-1 || !a.Pipelined
		if err == nil && readsNow {
			err = readAnswers(framer, open, out)
			open = 0
		}
		if err != nil {
			out[i].Problem = err.Error()
			break
		}
	}
	return out, nil
}

// readAnswers reads frames until the given number of streams have ended.
func readAnswers(framer *http2.Framer, streams int, out []reply) error {
	for streams > 0 {
		ended, err := readFrame(framer, out)
		if err != nil {
			return err
		}
		streams -= ended
	}
	return nil
}

// writeStream writes a request as the stream with the given ID.
func writeStream(framer *http2.Framer, encoder *hpack.Encoder, block *bytes.Buffer, id uint32, scheme string, r rawRequest) error {
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
	hasTrailers := len(r.Trailers) > 0
	if r.Body == "" && !hasTrailers {
		return header(r.Lines, true)
	}
	if err := header(r.Lines, false); err != nil {
		return err
	}
	if err := framer.WriteData(id, !hasTrailers, []byte(r.Body)); err != nil || !hasTrailers {
		return err
	}
	return header(r.Trailers, true)
}

// readFrame reads a frame, and returns how many streams it ended.
func readFrame(framer *http2.Framer, out []reply) (ended int, err error) {
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
		out[i].readHeaders(f)
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
	if endsStream(frame.Header()) {
		return 1, nil
	}
	return 0, nil
}

// readHeaders keeps the code of an answer, and the headers by which its audit event is found.
func (r *reply) readHeaders(f *http2.MetaHeadersFrame) {
	_, _ = fmt.Sscan(f.PseudoValue("status"), &r.Code)
	for _, field := range f.RegularFields() {
		switch http.CanonicalHeaderKey(field.Name) {
		case "Audit-Id":
			r.AuditID = field.Value
		case flowSchemaHeader:
			r.Flow = field.Value
		}
	}
}

// endsStream reports whether no frame of the same stream follows.
func endsStream(h http2.FrameHeader) bool {
	if h.Type == http2.FramePushPromise || h.StreamID == 0 {
		return false
	}
	return h.Flags.Has(http2.FlagDataEndStream)
}
