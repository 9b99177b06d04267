// Package auditlog reads audit logs of Kubernetes API servers: audit.k8s.io/v1 Events, one JSON document a line,
// and EventLists, plain or compressed. It is made for finding the few events that impersonate somebody among
// gigabytes of others: a line is decoded only if it holds the word. Memory does not grow with the log.
package auditlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/lru"
)

// Stats say what was read.
type Stats struct {
	Files int
	// Bytes are the log's, decompressed; Lines and Events all that there were: an EventList is one line with many events.
	Bytes, Lines, Events int64
	// Impersonated are the events of a request that impersonates, and of them Repeated those of a request that
	// another event told of before: another stage, or the same one twice.
	Impersonated, Repeated int64
	Refused                int64 // the requests that were not allowed to impersonate
	// Bad counts lines and items that are not audit events; the first few are listed.
	Bad      int64
	FirstBad []Bad
}

// Bad is a line that is not an audit event.
type Bad struct {
	File string `json:"file"`
	// Line counts from 1. Item is the number of an event within an EventList, from 1; 0 where the line is the event.
	Line int64  `json:"line"`
	Item int64  `json:"item,omitempty"`
	Why  string `json:"why"`
}

const (
	listedBad = 5
	chunk     = 1 << 20
	// longestLine is the longest that is taken: an API server cuts events before that
	// (--audit-log-truncate-max-batch-size is 10 MiB).
	longestLine = 16 << 20
	remembered  = 1 << 18 // how many requests back one is known again
	// headLength is where kind and version of an event stand, as API servers write it.
	headLength = 256
)

// needle is in every event that impersonates (impersonatedUser) and in every refusal (cannot impersonate …).
var needle = []byte("impersonate")

// Reader reads audit logs. It may be used for one file after the other, not by several goroutines.
type Reader struct {
	// Each is called with every event that impersonates. isRepeated means that an
	// earlier event was of the same request: it is not to be counted twice. An error ends the reading.
	Each func(e *auditv1.Event, isRepeated bool) error
	// Progress, if set, is called after every chunk.
	Progress func(Stats)

	stats Stats
	file  string
	line  int64
	seed  maphash.Seed
	ids   *lru.Cache // of requests
	buf   []byte
}

// Stats are the totals so far.
func (r *Reader) Stats() Stats { return r.stats }

// Read reads a log that is not compressed. name is what the log is called where a line of it is named. An error is
// one of reading, or of Each: bad lines are counted.
func (r *Reader) Read(name string, in io.Reader) error {
	r.file, r.line = name, 0
	r.stats.Files++
	if r.buf == nil {
		r.buf = make([]byte, chunk)
		r.seed, r.ids = maphash.MakeSeed(), lru.New(remembered)
	}
	kept, skipping := 0, false
	for {
		if kept == len(r.buf) {
			r.buf = append(r.buf, make([]byte, len(r.buf))...)
		}
		n, err := in.Read(r.buf[kept:])
		r.stats.Bytes += int64(n)
		data := r.buf[:kept+n]
		isStart := kept == 0 && r.line == 0
		if isStart && spread(data) {
			r.line = 1 // lines cannot be told any more: what is bad is named by its number in the list
			return r.items(io.MultiReader(bytes.NewReader(data), &countingReader{in, &r.stats.Bytes}))
		}
		if skipping {
			data, skipping = skipLine(data)
		}
		rest, lineErr := r.lines(data)
		switch {
		case lineErr != nil:
			return lineErr
		case errors.Is(err, io.EOF):
			return r.lastLine(rest)
		case err != nil:
			return err
		case len(rest) > longestLine:
			r.line++
			r.bad(0, "a line longer than 16 MiB")
			rest, skipping = nil, true
		}
		kept = copy(r.buf, rest)
		if r.Progress != nil {
			r.Progress(r.stats)
		}
	}
}

// skipLine returns what follows the first line of data, and whether that line goes on behind the data.
func skipLine(data []byte) (rest []byte, goesOn bool) {
	i := bytes.IndexByte(data, '\n')
	if i < 0 {
		return nil, true
	}
	return data[i+1:], false
}

// lastLine takes what stands behind the last end of a line.
func (r *Reader) lastLine(line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	return r.oneLine(line, bytes.Contains(line, needle))
}

// lines takes the whole lines of data and returns the rest. The word is looked for in all of the data at once.
func (r *Reader) lines(data []byte) (rest []byte, err error) {
	end := bytes.LastIndexByte(data, '\n') + 1
	data, rest = data[:end], data[end:]
	hit := next(data, 0)
	for at := 0; at < len(data); {
		length := bytes.IndexByte(data[at:], '\n')
		line := data[at : at+length]
		hasMatch := hit < at+length
		if err := r.oneLine(line, hasMatch); err != nil {
			return nil, err
		}
		if at += length + 1; hasMatch {
			hit = next(data, at)
		}
	}
	return rest, nil
}

func next(data []byte, from int) int {
	if i := bytes.Index(data[from:], needle); i >= 0 {
		return from + i
	}
	return len(data)
}

var (
	eventHead = []byte(`{"kind":"Event","apiVersion":"audit.k8s.io/`)
	listHead  = []byte(`"` + listKind + `"`)
	groupName = []byte(apiGroup)
)

// oneLine takes a line. One without the word is checked by its ends alone.
func (r *Reader) oneLine(line []byte, hasMatch bool) error {
	r.line++
	line = bytes.TrimRight(line, " \t\r")
	if len(line) == 0 {
		return nil
	}
	r.stats.Lines++
	switch {
	case line[0] != '{':
		r.bad(0, "not a JSON object")
	case line[len(line)-1] != '}':
		r.bad(0, "cut off: the line does not end with }")
	case !bytes.HasPrefix(line, eventHead) && bytes.Contains(line[:min(len(line), headLength)], listHead):
		return r.items(bytes.NewReader(line))
	case hasMatch:
		return r.event(line, 0)
	case !bytes.HasPrefix(line, eventHead) && !bytes.Contains(line, groupName):
		r.bad(0, "JSON, but not an event of audit.k8s.io")
	default:
		r.stats.Events++
	}
	return nil
}

func (r *Reader) event(raw []byte, item int64) error {
	e, err := decode(raw)
	if err != nil {
		r.bad(item, err.Error())
		return nil
	}
	r.stats.Events++
	switch {
	case refused(e):
		if !r.isKnown(e) {
			r.stats.Refused++
		}
	case e.ImpersonatedUser != nil && e.ImpersonatedUser.Username != "":
		isRepeated := r.isKnown(e)
		r.stats.Impersonated++
		if isRepeated {
			r.stats.Repeated++
		}
		return r.Each(e, isRepeated)
	}
	return nil
}

// isKnown reports whether an earlier event was of the same request, and remembers the request. Clients may choose the ID
// of their requests, so what another event says counts as well.
func (r *Reader) isKnown(e *auditv1.Event) bool {
	if e.AuditID == "" {
		return false
	}
	key := maphash.String(r.seed, string(e.AuditID)+" "+e.Verb+" "+e.User.Username+" "+e.RequestURI)
	_, known := r.ids.Get(key)
	r.ids.Add(key, nil)
	return known
}

// Spoilt counts an event that was read and that the caller cannot make sense of.
func (r *Reader) Spoilt(why string) { r.bad(0, why) }

func (r *Reader) bad(item int64, why string) {
	if r.stats.Bad++; len(r.stats.FirstBad) < listedBad {
		r.stats.FirstBad = append(r.stats.FirstBad, Bad{File: r.file, Line: r.line, Item: item, Why: why})
	}
}

// refused tells whether the event is of a request that the impersonation filter refused: there is nobody impersonated
// in it, and its 403 says so (k8s.io/apiserver/pkg/endpoints/filters/impersonation, checkAuthorization).
func refused(e *auditv1.Event) bool {
	return e.ImpersonatedUser == nil && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusForbidden &&
		strings.Contains(e.ResponseStatus.Message, "cannot impersonate")
}

const (
	apiGroup  = auditv1.GroupName + "/"
	eventKind = "Event"
	listKind  = "EventList"
)

func decode(raw []byte) (*auditv1.Event, error) {
	var e auditv1.Event
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	switch {
	case !strings.HasPrefix(e.APIVersion, apiGroup) || e.Kind != eventKind:
		return nil, fmt.Errorf("not an audit event but kind %q of %q", e.Kind, e.APIVersion)
	case slices.Contains([]string{string(e.Stage), e.Verb, e.RequestURI, e.User.Username}, ""):
		return nil, errors.New("an audit event without stage, verb, requestURI or user")
	}
	return &e, nil
}
