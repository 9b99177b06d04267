package reports

import (
	"bytes"

	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// Redact returns text with everything that looks like a credential replaced.
func Redact(text string) string { return record.Redact(text) }

// RedactEvidence returns evidence in which no credential is left. Structure is kept, and evidence that holds none comes
// back as it is, with times as a reader has them: without the monotonic clock. A runner calls it before judging, so that
// the verdict is that of what is stored.
func RedactEvidence(e *verdicts.Evidence) (*verdicts.Evidence, error) {
	raw, err := record.EncodeJSON(e, "")
	if err != nil || !record.Harmless(raw) || bytes.Contains(raw, []byte(`\ufffd`)) { // a reader has that for what is not UTF-8
		return record.RedactedCopy(e, "the evidence of "+e.Scenario+" on "+e.Cell.Name)
	}
	for part := e; part != nil; part = part.Control {
		part.Started, part.Ended = part.Started.Round(0), part.Ended.Round(0)
		byWallClock(part.Steps)
	}
	return e, nil
}

func byWallClock(steps []verdicts.Observation) {
	for i := range steps {
		o := &steps[i]
		o.Sent, o.Answered = o.Sent.Round(0), o.Answered.Round(0)
		for i := range o.Reviews {
			o.Reviews[i].At = o.Reviews[i].At.Round(0)
		}
		byWallClock(o.Requests)
	}
}
