package recorder

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxBody is what an API server itself accepts as a request body, so a check of anything that it let in fits.
	maxBody = 3 << 20
	// maxReason keeps the reason of a refusal on one readable line.
	maxReason = 300
)

// answers are the bodies of no opinion, by apiVersion. The answer to every review is the same, so it is written
// once. The spec is not echoed: an API server reads only the status.
var answers = map[string][]byte{
	v1:      statusOf(v1),
	v1beta1: statusOf(v1beta1),
}

// contentType is shared by all answers.
var contentType = []string{"application/json"}

func statusOf(apiVersion string) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":%q,"kind":%q,"metadata":{},"spec":{},"status":{"allowed":false,"denied":false}}`+"\n",
		apiVersion, kind)
}

// handle answers one review.
func (r *Recorder) handle(w http.ResponseWriter, req *http.Request) {
	m := r.mounts[req.URL.Path]
	switch {
	case m == nil:
		http.NotFound(w, req)
		return
	case req.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "reviews are posted", http.StatusMethodNotAllowed)
		return
	}
	body, err := readBody(req)
	counting := r.counting.Load()
	if m.point != Front && m.point != Back {
		counting = nil
	}
	if err != nil && counting != nil && req.Context().Err() != nil {
		return // In a storm API servers give requests up that take too long, some before all of a review is sent.
	}
	if err == nil && counting != nil && counting.Other == nil {
		if verb, ok := writtenVerb(body); ok {
			r.count(counting, w, req, m.point, v1, verb)
			return
		}
	}
	var asked review
	if err == nil {
		asked, err = readReview(body)
	}
	if err != nil {
		why := oneLine(err.Error())
		r.journal.refuse(why)
		http.Error(w, why, http.StatusBadRequest)
		return
	}
	if counting != nil && !asked.probe() {
		if counting.Other != nil && counting.Other(m.point, asked.spec) {
			r.journal.pass()
			noOpinion(w, asked.apiVersion)
			return
		}
		r.count(counting, w, req, m.point, asked.apiVersion, asked.verb())
		return
	}
	// Recorded first: an answer is the proof that the record has it.
	if asked.probe() {
		r.journal.pass()
	} else {
		record := Record{Point: m.point, APIVersion: asked.apiVersion, Spec: asked.spec}
		if m.script != nil {
			answer := m.script(asked.spec)
			record.Answer = &answer
		}
		r.journal.add(record)
		if record.Answer != nil {
			record.Answer.send(w, req, asked.apiVersion)
			return
		}
	}
	noOpinion(w, asked.apiVersion)
}

// noOpinion answers so. An error means that the API server has gone away: what it asked is recorded all the same, and
// there is nobody left to tell.
func noOpinion(w http.ResponseWriter, apiVersion string) {
	w.Header()["Content-Type"] = contentType
	_, _ = w.Write(answers[apiVersion])
}

// readBody reads a whole body.
func readBody(req *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the body ends after %d bytes: %w", len(body), err)
	case len(body) > maxBody:
		return nil, fmt.Errorf("the body is over %d bytes", maxBody)
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

// Script decides what a point answers to a review. It is called from several
// goroutines, and not for probes, which get no opinion everywhere.
type Script func(authorizationv1.SubjectAccessReviewSpec) Answer

// Answer is what a scripted point sends back. The zero value is no opinion.
type Answer struct {
	// Status is the decision. Nothing keeps it from being contradictory.
	Status authorizationv1.SubjectAccessReviewStatus
	// Code and Body, if Code is set, are sent instead of a review: an error, or garbage.
	Code int
	Body string
	// Delay is how long the answer takes. It ends early when the API server goes away.
	Delay time.Duration
}

// send answers as the script says.
func (a *Answer) send(w http.ResponseWriter, req *http.Request, apiVersion string) {
	if a.Delay > 0 {
		timer := time.NewTimer(a.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-req.Context().Done():
			return
		}
	}
	if a.Code != 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(a.Code)
		_, _ = w.Write([]byte(a.Body))
		return
	}
	w.Header()["Content-Type"] = contentType
	_ = json.NewEncoder(w).Encode(struct {
		metav1.TypeMeta `json:",inline"`
		Status          authorizationv1.SubjectAccessReviewStatus `json:"status"`
	}{metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}, a.Status})
}
