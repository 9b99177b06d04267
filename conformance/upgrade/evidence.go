package upgrade

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// StageRecord is what was seen on a stage besides its scenarios. There is one of each stage that was stayed on to its end.
type StageRecord struct {
	// DownSeconds is the time from when the API server of the stage before was told to end (or killed) until that of this
	// stage was ready; 0 on the first.
	DownSeconds float64 `json:"downSeconds,omitempty"`
	// Objects are those of all setups that were made by then, as the API server wrote them at the end of the stage.
	Objects []ObjectState `json:"objects"`
	// Verbs counts the access reviews that arrived at the front of the chain during the stage, by verb.
	Verbs map[string]int `json:"verbs"`
	// Neighbours are the same counts of the other API servers that ran meanwhile, by the cells that they were.
	Neighbours map[string]map[string]int `json:"neighbours,omitempty"`
	// Writes is what was written on the stage, besides the setups.
	Writes *WriteRecord `json:"writes,omitempty"`
	// Flow are the requests that were sent on the way to this stage; nil where none were.
	Flow *FlowRecord `json:"flow,omitempty"`
}

// ObjectState is an object as it was read.
type ObjectState struct {
	Path string `json:"path"`
	Body string `json:"body"` // the JSON of the API server, byte for byte
}

// FlowRecord is requests that were sent all the time, while API servers were replaced.
type FlowRecord struct {
	// Samples are the requests, in the order of sending.
	Samples []FlowSample `json:"samples"`
	// Servers are the stays of each API server.
	Servers [][]FlowStay `json:"servers"`
	// Suffixes are what made the names of each setup unique.
	Suffixes map[string]string `json:"suffixes"`
}

// FlowSample is one request with its answer.
type FlowSample struct {
	Setup string `json:"setup"`
	Error string `json:"error,omitempty"` // what the client saw in place of an answer
	// Server is the index of the API server that wrote the request's audit event, -1 if none did.
	Server int                  `json:"server"`
	Seen   verdicts.Observation `json:"seen"`
}

// FlowStay is when an API server was that of one cell: from when it was ready to its end. A zero time is open.
type FlowStay struct {
	Cell  string    `json:"cell"`
	Ready time.Time `json:"ready"`
	Ended time.Time `json:"ended,omitzero"`
}

// stageKey is the key of what was seen on a stage besides its scenarios.
func stageKey(stage string) string { return "stages/" + stage }

func readStage(view record.View, stage string) (*StageRecord, error) {
	return record.Read[StageRecord](view, stageKey(stage))
}

// check returns an error if what is about to be recorded of a stage contradicts itself, or its scenarios: a fault of ours.
func (e *StageRecord) check(stage *StagePlan, view record.View) error {
	for _, o := range e.Objects {
		var object struct{ Metadata struct{ Name string } }
		if err := json.Unmarshal([]byte(o.Body), &object); err != nil || object.Metadata.Name != path.Base(o.Path) {
			return fmt.Errorf("what was read of %s is another object", o.Path)
		}
	}
	verbs := countVerbs(stage, view)
	for _, verb := range slices.Sorted(maps.Keys(verbs)) {
		if e.Verbs[verb] < verbs[verb] {
			return fmt.Errorf("%d reviews with the verb %s were counted, and %d arrived in the scenarios", e.Verbs[verb], verb, verbs[verb])
		}
	}
	if e.Flow != nil {
		return e.Flow.check()
	}
	return nil
}

// countVerbs counts the reviews at the front of the chain in the scenarios of a stage, by verb.
func countVerbs(stage *StagePlan, view record.View) map[string]int {
	verbs := map[string]int{}
	for _, s := range stage.Runs() {
		e, err := conformance.ReadEvidence(view, stage.Name(), s.ID)
		if err != nil {
			continue
		}
		for _, o := range verdicts.Requests(e.Steps) {
			for _, r := range o.Reviews {
				if verb := verbOf(r); r.Point == verdicts.Front && verb != "" {
					verbs[verb]++
				}
			}
		}
	}
	return verbs
}

func verbOf(r verdicts.Review) string {
	switch {
	case r.Spec.ResourceAttributes != nil:
		return r.Spec.ResourceAttributes.Verb
	case r.Spec.NonResourceAttributes != nil:
		return r.Spec.NonResourceAttributes.Verb
	}
	return ""
}

// check returns an error if a request was both answered and not, is not in the order of sending, or shares its audit
// event with another.
func (f *FlowRecord) check() error {
	ids := map[string]bool{}
	var last time.Time
	for i, s := range f.Samples {
		wasAnswered := s.Seen.Audit != nil || s.Server >= 0
		switch id := s.Seen.Response.AuditID; {
		case s.Error != "" && wasAnswered:
			return fmt.Errorf("request %d has an audit event, and no answer: %s", i, s.Error)
		case s.Error == "" && s.Seen.Response.Code == 0:
			return fmt.Errorf("request %d has neither an answer nor an error", i)
		case id != "" && ids[id]:
			return fmt.Errorf("request %d has the audit ID %s of another", i, id)
		case s.Seen.Sent.Before(last), s.Seen.Answered.Before(s.Seen.Sent):
			return fmt.Errorf("request %d is not in the order of time", i)
		default:
			ids[id] = true
		}
		last = s.Seen.Sent
	}
	return nil
}

// unanswered counts the requests to which no API server gave an answer that decides something.
func (f *FlowRecord) unanswered() int { return seq.Count(f.Samples, FlowSample.isUnanswered) }
