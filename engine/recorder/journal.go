package recorder

import (
	"slices"
	"sort"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// Record is one review as it arrived.
type Record struct {
	// Seq is the place in the order of arrival over all points, from 1. Probes
	// and malformed reviews take a place too.
	Seq uint64
	// Point is where it arrived.
	Point Point
	// At is the time of arrival: the whole body was there. It never decreases
	// with Seq, and it has a monotonic clock reading.
	At time.Time
	// APIVersion is authorization.k8s.io/v1 or authorization.k8s.io/v1beta1.
	APIVersion string
	// Spec is what was asked; v1beta1 is converted. It must not be changed.
	Spec authorizationv1.SubjectAccessReviewSpec
	// Answer is what a scripted point sent back; nil at every other point.
	Answer *Answer
}

// journal is the record of all arrivals, in order.
type journal struct {
	mu      sync.Mutex
	seq     uint64
	records []Record
	refused int
	first   string // why the first was refused
}

// add records a well-formed review. Time is taken under the lock, so that it can never contradict the order.
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

// refuse counts a malformed review.
func (j *journal) refuse(why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	if j.refused++; j.refused == 1 {
		j.first = why
	}
}

func (j *journal) mark() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seq
}

func (j *journal) reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = nil
}

// since looks for the users outside the lock, so that a reader never delays an arrival: records never change once they
// are there.
func (j *journal) since(mark uint64, users []string) (out []Record) {
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
