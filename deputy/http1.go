package deputy

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// sendOverHTTP1 writes requests to one connection, or to a new one after the server hangs up, and reads their answers.
// Client libraries refuse to write most of these requests.
func sendOverHTTP1(connect func(from net.Addr) (net.Conn, error), requests []rawRequest, a attack) []reply {
	s := &http1Sender{connect: connect, attack: a}
	defer s.hangUp()
	replies := make([]reply, len(requests))
	for i, r := range requests {
		if err := s.send(r, &replies[i]); err != nil {
			replies[i].Problem = err.Error()
		}
	}
	if a.Pipelined {
		s.readAll(requests, replies)
	}
	return replies
}

// http1Sender is the connection of an attack.
type http1Sender struct {
	connect func(from net.Addr) (net.Conn, error)
	attack  attack
	conn    net.Conn // nil while there is none
	reader  *bufio.Reader
}

// hangUp closes the connection, if there is one.
func (s *http1Sender) hangUp() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

// open opens a connection, unless there is one that the request can use.
func (s *http1Sender) open(r rawRequest) (err error) {
	var from net.Addr
	switch {
	case r.SamePort && s.conn != nil:
		from = s.conn.LocalAddr()
		resetConn(s.conn)
		s.conn = nil
	case s.attack.usesPortAgain():
		from = &net.TCPAddr{} // a port that no other connection has, or it could not be used again
	}
	if s.conn == nil {
		if s.conn, err = s.connect(from); err != nil {
			s.conn = nil
			return err
		}
		s.reader = bufio.NewReader(s.conn)
	}
	return nil
}

// send writes a request and reads its answer, unless the attack reads the answers later or not at all.
func (s *http1Sender) send(r rawRequest, answer *reply) error {
	if err := s.open(r); err != nil {
		return err
	}
	_ = s.conn.SetDeadline(time.Now().Add(s.attack.answerTimeout()))
	_, err := io.WriteString(s.conn, r.wireText())
	waits := !s.attack.Pipelined && !r.HangUp
	ended := false
	if err == nil && waits {
		ended, err = answer.read(s.reader, r.Method)
	}
	isOver := ended || r.HangUp
	if err != nil || isOver {
		s.hangUp()
	}
	return err
}

// readAll reads the answers to requests that were written one after another.
func (s *http1Sender) readAll(requests []rawRequest, replies []reply) {
	for i := range requests {
		if s.conn == nil {
			return
		}
		if _, err := replies[i].read(s.reader, requests[i].Method); err != nil {
			replies[i].Problem = err.Error()
			return
		}
	}
}

// read reads the answer to a request. It reports whether the connection ends with it.
func (r *reply) read(from *bufio.Reader, method string) (ended bool, err error) {
	resp, err := readFinal(from, method)
	if err != nil {
		return false, err
	}
	r.Code, r.AuditID, r.Flow = resp.StatusCode, resp.Header.Get("Audit-Id"), resp.Header.Get(flowSchemaHeader)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return false, errors.New("the connection was upgraded")
	}
	var object struct{ Kind string }
	body, err := io.ReadAll(resp.Body)
	_ = json.Unmarshal(body, &object)
	r.Kind = object.Kind
	return resp.Close, errors.Join(err, resp.Body.Close())
}

// readFinal reads the final answer to a request, after any that only say that it continues, such as 100 Continue.
func readFinal(from *bufio.Reader, method string) (*http.Response, error) {
	for {
		resp, err := http.ReadResponse(from, &http.Request{Method: method})
		isInterim := err == nil && resp.StatusCode < http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols
		if !isInterim {
			return resp, err
		}
	}
}
