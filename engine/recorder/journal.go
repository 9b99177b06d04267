package recorder

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
)

const (
	// pageSize is how many entries are allocated at once. A journal of pages is never copied as it grows, so the
	// lock is held equally short for the first review of a storm and for the millionth.
	pageSize = 1024
	// maxMalformed and maxMalformedBody bound what a client that only talks
	// nonsense can make the recorder keep: 64 MiB.
	maxMalformed     = 1000
	maxMalformedBody = 64 << 10
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
	// Spec is what was asked; v1beta1 is converted. It belongs to the caller.
	Spec authorizationv1.SubjectAccessReviewSpec
	// Raw is the body as received, so that fields which Spec does not know stay evidence. It must not be changed.
	// That of a malformed review may be cut and may be no JSON.
	Raw json.RawMessage
	// Answer is what a scripted point sent back; nil at every other point.
	Answer *Answer
	// Malformed says why the review was refused; Spec is empty then. It is empty
	// for every record that Since returns.
	Malformed string
}

// entry is what is kept of a review. The spec is not: decoded it takes several
// times the space of its text, and most reviews of a storm are never asked for.
type entry struct {
	seq   uint64
	at    time.Time
	point Point
	head  head
	raw   []byte
	// answer is nil at a point without a script.
	answer *Answer
}

// journal is the record of all arrivals, in order.
type journal struct {
	mu        sync.Mutex
	seq       uint64
	pages     [][]entry // all full but the last; none is empty
	malformed []Record
}

// arrive gives the next place in the order. Time is taken under the lock, so that
// it can never contradict the order. The caller holds the lock.
func (j *journal) arrive() (uint64, time.Time) {
	j.seq++
	return j.seq, time.Now()
}

// add records a well-formed review. The journal keeps raw.
func (j *journal) add(p Point, h head, raw []byte, answer *Answer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	seq, at := j.arrive()
	last := len(j.pages) - 1
	if last < 0 || len(j.pages[last]) == pageSize {
		j.pages = append(j.pages, make([]entry, 0, pageSize))
		last++
	}
	j.pages[last] = append(j.pages[last], entry{seq: seq, at: at, point: p, head: h, raw: raw, answer: answer})
}

// pass gives a probe its place in the order and keeps nothing.
func (j *journal) pass() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.arrive()
}

// refuse records a malformed review while there is room.
func (j *journal) refuse(p Point, apiVersion, why string, raw []byte) {
	if len(raw) > maxMalformedBody {
		raw = slices.Clone(raw[:maxMalformedBody])
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	seq, at := j.arrive()
	if len(j.malformed) < maxMalformed {
		j.malformed = append(j.malformed, Record{
			Seq: seq, Point: p, At: at, APIVersion: apiVersion, Raw: raw, Malformed: why,
		})
	}
}

func (j *journal) mark() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seq
}

func (j *journal) refused() []Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.malformed)
}

func (j *journal) reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pages, j.malformed = nil, nil
}

// after returns the pages that hold entries after mark. Entries never change once
// they are written, so the pages can be read without the lock.
func (j *journal) after(mark uint64) [][]entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	first := sort.Search(len(j.pages), func(i int) bool {
		page := j.pages[i]
		return page[len(page)-1].seq > mark
	})
	return slices.Clone(j.pages[first:])
}

// since decodes the asked for reviews outside the lock, so that a reader never delays an arrival.
func (j *journal) since(mark uint64, users []string) []Record {
	var out []Record
	for _, page := range j.after(mark) {
		for i := range page {
			e := &page[i]
			if e.seq <= mark || len(users) > 0 && !slices.Contains(users, e.head.user) {
				continue
			}
			out = append(out, e.record())
		}
	}
	return out
}

// record decodes an entry.
func (e *entry) record() Record {
	spec, err := decodeSpec(e.head.apiVersion, e.raw)
	if err != nil {
		// The head was read from the same bytes, and that is the promise made
		// then. A record that is silently wrong would be worse than no run.
		panic(fmt.Sprintf("recorder: review %d was accepted and does not decode: %v", e.seq, err))
	}
	return Record{Seq: e.seq, Point: e.point, At: e.at, APIVersion: e.head.apiVersion, Spec: spec, Raw: e.raw, Answer: e.answer}
}
