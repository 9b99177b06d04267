package recorder

import (
	"context"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// Counting is for storms: what would fill the memory as a record is counted, and
// forgotten. Its functions are called from several goroutines.
type Counting struct {
	// Arrived is called for each review before it is answered, so that what an API
	// server has an answer to is counted.
	Arrived func(p Point, verb string)
	// Answered is called when the answer is written; took is the time since the request was read.
	Answered func(p Point, took time.Duration)
	// Other, if given, says of a review that it is not of the storm. It is answered
	// at once, and the other functions are not told.
	Other func(p Point, spec authorizationv1.SubjectAccessReviewSpec) bool
	// Delay, if given, is how long an answer at Front takes, to stand for an authorizer that is far away. Back answers
	// at once: the chain as a whole has one delay. Slots, if given, is how many answers may take so long at once: the
	// others wait, as before an authorizer that is saturated.
	Delay func() time.Duration
	Slots chan struct{}
}

// Count counts the reviews at Front and Back from now on instead of recording them; nil records again. Probes and
// malformed reviews are treated as ever, and counted ones take their place in the order.
func (r *Recorder) Count(c *Counting) { r.counting.Store(c) }

// count answers one review that is only counted.
func (r *Recorder) count(c *Counting, w http.ResponseWriter, req *http.Request, m *mount, h head, body []byte) {
	begin := time.Now()
	r.journal.pass()
	m.reviews.Add(1)
	if c.Other != nil {
		if spec, err := decodeSpec(h.apiVersion, body); err == nil && c.Other(m.point, spec) {
			w.Header()["Content-Type"] = contentType
			_, _ = w.Write(answers[h.apiVersion])
			return
		}
	}
	c.Arrived(m.point, verbOf(h, body))
	if c.Delay != nil && m.point == Front {
		c.hold(req.Context())
	}
	w.Header()["Content-Type"] = contentType
	_, _ = w.Write(answers[h.apiVersion])
	c.Answered(m.point, time.Since(begin))
}

// hold takes the time that an answer takes, unless the API server goes away.
func (c *Counting) hold(ctx context.Context) {
	if c.Slots != nil {
		select {
		case c.Slots <- struct{}{}:
			defer func() { <-c.Slots }()
		case <-ctx.Done():
			return
		}
	}
	timer := time.NewTimer(c.Delay())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// verbOf is the verb of a review that was accepted.
func verbOf(h head, body []byte) string {
	s, v := scanner{in: body}, verbScan{}
	if s.object(v.top) && s.end() {
		return v.verb
	}
	spec, err := decodeSpec(h.apiVersion, body)
	switch {
	case err != nil: // cannot be: the head was read from it
		return ""
	case spec.ResourceAttributes != nil:
		return spec.ResourceAttributes.Verb
	case spec.NonResourceAttributes != nil:
		return spec.NonResourceAttributes.Verb
	}
	return ""
}

// verbScan is scan for the verb: what it does not know is left to the decoder.
type verbScan struct {
	scanned
	verb string
}

func (v *verbScan) top(s *scanner, key []byte) bool {
	if string(key) == "spec" {
		return v.first(fieldSpec) && s.object(v.spec)
	}
	return v.scanned.top(s, key)
}

func (v *verbScan) spec(s *scanner, key []byte) bool {
	switch string(key) {
	case "resourceAttributes":
		return v.first(fieldResource) && s.object(v.attribute)
	case "nonResourceAttributes":
		return v.first(fieldNonResource) && s.object(v.attribute)
	}
	return v.scanned.spec(s, key)
}

func (v *verbScan) attribute(s *scanner, key []byte) bool {
	if string(key) == "verb" {
		again := v.verb != ""
		return s.keep(&v.verb) && !again
	}
	return resourceField(s, key) || nonResourceField(s, key)
}
