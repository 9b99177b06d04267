package recorder

import (
	"bytes"
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
func (r *Recorder) count(c *Counting, w http.ResponseWriter, req *http.Request, p Point, apiVersion, verb string) {
	begin := time.Now()
	r.journal.pass()
	c.Arrived(p, verb)
	if c.Delay != nil && p == Front {
		c.hold(req.Context())
	}
	noOpinion(w, apiVersion)
	c.Answered(p, time.Since(begin))
}

// written is how API servers begin a review.
var written = []byte(`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1",`)

// writtenVerb is the verb of a review as API servers write it: decoding all of a review that is only counted costs the
// recorder as much as the rest of answering it. Without escapes nothing but the field looks like it.
func writtenVerb(body []byte) (string, bool) {
	before, after, found := bytes.Cut(body, []byte(`"verb":"`))
	verb, _, closed := bytes.Cut(after, []byte(`"`))
	plain := bytes.HasPrefix(before, written) && !bytes.ContainsRune(body, '\\') && !bytes.Contains(body, []byte(ProbeExtraKey))
	return string(verb), found && closed && plain && bytes.Count(after, []byte(`"verb":"`)) == 0
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
