package recorder

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

const (
	// maxBody is what an API server itself accepts as a request body, so a check of anything that it let in fits.
	maxBody = 3 << 20
	// maxTrusted is how much memory a Content-Length is believed for.
	maxTrusted = 64 << 10
	// maxReason keeps the reason of a refusal on one readable line.
	maxReason = 300
)

// answers are the bodies of no opinion, by apiVersion. The answer to every review is the same, so it is written
// once. The spec is not echoed: an API server reads only the status.
var answers = map[string][]byte{
	v1:      noOpinion(v1),
	v1beta1: noOpinion(v1beta1),
}

// contentType is shared by all answers.
var contentType = []string{"application/json"}

func noOpinion(apiVersion string) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":%q,"kind":%q,"metadata":{},"spec":{},"status":{"allowed":false,"denied":false}}`+"\n",
		apiVersion, kind)
}

// handle answers one review.
func (r *Recorder) handle(w http.ResponseWriter, req *http.Request) {
	m := r.mounts[req.URL.Path]
	switch {
	case m == nil:
		r.strays.Add(1)
		http.NotFound(w, req)
		return
	case req.Method != http.MethodPost:
		r.strays.Add(1)
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "reviews are posted", http.StatusMethodNotAllowed)
		return
	}
	body, err := readBody(req)
	if err != nil {
		r.refuse(w, m, head{}, body, err)
		return
	}
	h, err := readHead(body)
	if err != nil {
		r.refuse(w, m, h, body, err)
		return
	}
	if c := r.counting.Load(); c != nil && !h.probe && (m.point == Front || m.point == Back) {
		r.count(c, w, req, m, h, body)
		return
	}
	// Recorded first: an answer is the proof that the record has it.
	if h.probe {
		r.journal.pass()
		m.probes.Add(1)
	} else {
		answer := m.scripted(h, body)
		r.journal.add(m.point, h, body, answer)
		m.reviews.Add(1)
		if answer != nil {
			answer.send(w, req, h.apiVersion)
			return
		}
	}
	w.Header()["Content-Type"] = contentType
	// An error means that the API server has gone away. What it asked is
	// recorded all the same, and there is nobody left to tell.
	_, _ = w.Write(answers[h.apiVersion])
}

// refuse keeps a malformed review as evidence and answers 400.
func (r *Recorder) refuse(w http.ResponseWriter, m *mount, h head, body []byte, err error) {
	why := oneLine(err.Error())
	r.journal.refuse(m.point, oneLine(h.apiVersion), why, body)
	m.malformed.Add(1)
	http.Error(w, why, http.StatusBadRequest)
}

// readBody reads a whole body. With an error it returns what it has read.
func readBody(req *http.Request) ([]byte, error) {
	if n := req.ContentLength; 0 < n && n <= maxTrusted {
		// The usual case: one allocation of the right size, which the journal
		// keeps. The server gives no more than the announced length.
		body := make([]byte, n)
		got, err := io.ReadFull(req.Body, body)
		if err != nil {
			return body[:got], fmt.Errorf("the body ends after %d of %d bytes: %w", got, n, err)
		}
		return body, nil
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	switch {
	case err != nil:
		return body, fmt.Errorf("the body ends after %d bytes: %w", len(body), err)
	case len(body) > maxBody:
		return body, fmt.Errorf("the body is over %d bytes", maxBody)
	}
	return body, nil
}

// oneLine makes a short line out of text that may come from a client.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "…"
	}
	return s
}
