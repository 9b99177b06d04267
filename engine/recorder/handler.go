package recorder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/authzconf/authzconf/clusters"
)

const (
	// maxBody is what an API server itself accepts as a request body, so a check of anything that it let in fits.
	maxBody = 3 << 20
	// maxReason keeps the reason of a refusal on one readable line.
	maxReason = 300
)

// unopinionated is the answer of no opinion to every review, without the spec: an API server reads only the status.
var unopinionated = []byte(`{"apiVersion":"` + APIVersion + `","kind":"` + kind + `","metadata":{},"spec":{},"status":{"allowed":false,"denied":false}}` + "\n")

var contentType = []string{"application/json"}

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
	body, unread := readBody(req)
	if unread != nil && isGone(req, body) {
		return
	}
	counting := r.countingAt(m)
	if counting != nil && r.countAtOnce(counting, w, req, m, body, unread) {
		return
	}
	question, err := r.review(body, unread)
	if err != nil {
		why := oneLine(err.Error())
		r.refuse(why)
		http.Error(w, why, http.StatusBadRequest)
		return
	}
	switch {
	case question.probe(), counting.isOther(m.point, question.spec):
		r.pass()
		noOpinion(w)
	case counting != nil:
		r.countReview(counting, w, req, m.point, question.verb(), body)
	default:
		r.record(w, req, m, question)
	}
}

// countingAt returns what counts the reviews of a mount, or nil where they are recorded, as they are between the two ends
// of the chain at all times.
func (r *Recorder) countingAt(m *mount) *StormHooks {
	if m.point != Front && m.point != Back {
		return nil
	}
	return r.counting.Load()
}

// countAtOnce counts a review without reading all of it, and reports whether it did, or whether nothing is to be done:
// in a storm API servers give requests up that take too long, some before all of a review is sent.
func (r *Recorder) countAtOnce(counting *StormHooks, w http.ResponseWriter, req *http.Request, m *mount, body []byte, unread error) bool {
	if unread != nil {
		return req.Context().Err() != nil
	}
	if counting.Other != nil {
		return false
	}
	verb, ok := writtenVerb(body)
	if ok {
		r.countReview(counting, w, req, m.point, verb, body)
	}
	return ok
}

// isOther reports whether a review is not to be counted.
func (c *StormHooks) isOther(point Point, spec authorizationv1.SubjectAccessReviewSpec) bool {
	return c != nil && c.Other != nil && c.Other(point, spec)
}

// record keeps a review, and answers it.
func (r *Recorder) record(w http.ResponseWriter, req *http.Request, m *mount, question review) {
	record := Record{Point: m.point, Spec: question.spec}
	if m.script != nil {
		record.Answer = new(m.script(question.spec))
	}
	r.add(record) // before the answer, which is the proof that the record has it
	if record.Answer != nil {
		record.Answer.send(w, req)
		return
	}
	noOpinion(w)
}

// review reads a review, unless it is the one that was read last: Back is asked what Front was asked just before. unread
// is why there is no body.
func (r *Recorder) review(body []byte, unread error) (question review, err error) {
	last := r.read.Load()
	switch {
	case unread != nil:
		return review{}, unread
	case last != nil && bytes.Equal(last.body, body):
		return last.review, nil
	}
	if question, err = readReview(body); err == nil {
		r.read.Store(&reviewWithBody{body, question})
	}
	return question, err
}

// noOpinion answers so. On an error the API server has gone away: what it asked is recorded, and nobody is left to tell.
func noOpinion(w http.ResponseWriter) {
	w.Header()["Content-Type"] = contentType
	_, _ = w.Write(unopinionated)
}

// isGone reports whether a client has gone before anything of a review was there, as an API server that is killed: nothing was
// asked.
func isGone(req *http.Request, body []byte) bool { return len(body) == 0 && req.Context().Err() != nil }

func readBody(req *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	switch {
	case err != nil:
		return body, fmt.Errorf("the body ends after %d bytes: %w", len(body), err)
	case len(body) > maxBody:
		return body, fmt.Errorf("the body is over %d bytes", maxBody)
	}
	return body, nil
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "…"
	}
	return s
}

// Script decides what a point answers to a review, called from several goroutines. Probes get no opinion everywhere.
type Script func(authorizationv1.SubjectAccessReviewSpec) ScriptedReply

// ScriptedReply is what a scripted point sends back. The zero value is no opinion.
type ScriptedReply struct {
	// Status is the decision. Nothing keeps it from being contradictory.
	Status authorizationv1.SubjectAccessReviewStatus
	// Code and Body, if Code is set, are sent instead of a review: an error, or garbage.
	Code int
	Body string
	// Delay is how long the answer takes. It ends early when the API server goes away.
	Delay time.Duration
}

func (a *ScriptedReply) send(w http.ResponseWriter, req *http.Request) {
	if a.Delay > 0 && !clusters.Pause(req.Context(), a.Delay) {
		return
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
	}{metav1.TypeMeta{APIVersion: APIVersion, Kind: kind}, a.Status})
}

// APIVersion is that of reviews: a chain asks the recorder by no other.
const APIVersion = "authorization.k8s.io/v1"

const kind = "SubjectAccessReview"

type review struct {
	spec authorizationv1.SubjectAccessReviewSpec
}

// reviewWithBody is a review with the body that it was read from.
type reviewWithBody struct {
	body []byte
	review
}

// probe says whether the harness asked for it itself.
func (r review) probe() bool {
	_, probe := r.spec.Extra[ProbeExtraKey]
	return probe
}

func (r review) verb() string {
	switch {
	case r.spec.ResourceAttributes != nil:
		return r.spec.ResourceAttributes.Verb
	case r.spec.NonResourceAttributes != nil:
		return r.spec.NonResourceAttributes.Verb
	}
	return ""
}

// readReview reads a review, or says why it is none. One about nobody, or with another number of questions than one, is what
// the API server is judged by: it must not ask it.
func readReview(body []byte) (review, error) {
	// The decoder of the API server: names are case-sensitive, unknown ones pass.
	var r authorizationv1.SubjectAccessReview
	err := kjson.UnmarshalCaseSensitivePreserveInts(body, &r)
	switch {
	case err != nil:
		return review{}, err
	case r.Kind != kind:
		return review{}, fmt.Errorf("kind is %.100q, not %s", r.Kind, kind)
	case r.APIVersion != APIVersion:
		return review{}, fmt.Errorf("apiVersion is %.100q, not %s", r.APIVersion, APIVersion)
	}
	return review{r.Spec}, nil
}

// Record is one review as it arrived.
type Record struct {
	// Seq is the place in the order of arrival over all points, from 1. Probes and malformed reviews take a place too.
	Seq   uint64
	Point Point // where it arrived
	// At is when the whole body was there. It never decreases with Seq, and has a monotonic clock reading.
	At time.Time
	// Spec is what was asked. It must not be changed.
	Spec   authorizationv1.SubjectAccessReviewSpec
	Answer *ScriptedReply // what a scripted point sent back; nil at every other point
}

type journal struct {
	mu      sync.Mutex
	seq     uint64
	records []Record
	refused int
	first   string // why the first was refused
}

func (j *journal) add(r Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	r.Seq, r.At = j.seq, time.Now()
	j.records = append(j.records, r)
}

// pass gives a probe its place in the order and keeps nothing.
func (j *journal) pass() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
}

func (j *journal) refuse(why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	if j.refused++; j.refused == 1 {
		j.first = why
	}
}

// Mark is the Seq of the last arrival: Since(Mark()) is what arrives from now on.
func (j *journal) Mark() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seq
}

// Reset forgets all records, so that a long run needs no more memory than its longest part. Seq goes on.
// Records that somebody still means to ask for are lost, so it belongs where nothing is under way.
func (j *journal) Reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = nil
}

// Since returns, in order of arrival, the reviews after mark whose Spec.User is one of users, or all of them if no
// user is given. Probes and malformed reviews are not among them. Users are looked for outside the lock, so that a reader
// never delays an arrival: records never change once they are there.
func (j *journal) Since(mark uint64, users ...string) (out []Record) {
	j.mu.Lock()
	all := j.records
	j.mu.Unlock()
	for _, r := range all[sort.Search(len(all), func(i int) bool { return all[i].Seq > mark }):] {
		if len(users) == 0 || slices.Contains(users, r.Spec.User) {
			out = append(out, r)
		}
	}
	return out
}
