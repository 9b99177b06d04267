package upgrade

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// judgeWrites judges what was written on a stage: each write was accepted, changed what it sent and nothing else, and the
// permissions that were written are in force.
func judgeWrites(r *WriteRecord) (v verdicts.Verdict, detail string) {
	if r == nil || len(r.Writes) == 0 {
		return verdicts.Invalid, "nothing was written"
	}
	before := map[string]string{} // by path
	for _, o := range r.Found {
		before[o.Path] = o.Body
	}
	for _, w := range r.Writes {
		if problem := w.explain(before[w.Path]); problem != "" {
			return verdicts.Failed, fmt.Sprintf("%s %s: %s", w.Verb, w.Path, problem)
		}
		before[w.Path] = w.After
	}
	for _, d := range r.Decisions {
		if d.Allowed != d.Granted {
			return verdicts.Failed, fmt.Sprintf(
				"%s may get the ConfigMap %s: %t, and what was written grants: %t",
				d.User,
				d.Name,
				d.Allowed,
				d.Granted,
			)
		}
	}
	return verdicts.Passed, fmt.Sprintf("%s took effect, and what is granted is in force", reports.Plural(len(r.Writes), "write"))
}

// explain returns how the write did something else than it says; "" if it did that. before is the object as it was, "" if
// there was none.
func (w Write) explain(before string) string {
	if w.Message != "" {
		return fmt.Sprintf("refused with %d: %s", w.Code, w.Message)
	}
	was := map[string]any{}
	if before != "" {
		was = decodeObject(before)
	}
	sentObject, is := decodeObject(string(w.Sent)), decodeObject(w.After)
	if was == nil || sentObject == nil || is == nil {
		return "what was sent or read is not a JSON object"
	}
	want := w.dropOwn(mergePatch(was, sentObject))
	got := w.dropOwn(is)
	if reflect.DeepEqual(want, got) {
		return ""
	}
	at, x, y := reports.FirstChange(want, got)
	return fmt.Sprintf("%s should be %s, and is %s", cmp.Or(at, "the object"), x, y)
}

// decodeObject returns a JSON object, nil if the text is none.
func decodeObject(text string) (object map[string]any) {
	if json.Unmarshal([]byte(text), &object) != nil {
		return nil
	}
	return object
}

// dropOwn returns an object without what the API server writes itself: what changes with every write, and what it adds to a new
// object.
func (w Write) dropOwn(object map[string]any) map[string]any {
	serverFields := []string{"resourceVersion", "managedFields", "generation"}
	if w.Verb == WriteCreate {
		serverFields = append(serverFields, "uid", "creationTimestamp")
	}
	metadata, _ := object["metadata"].(map[string]any)
	rest := mergePatch(map[string]any{}, metadata)
	for _, field := range serverFields {
		delete(rest, field)
	}
	return mergePatch(object, map[string]any{"metadata": nil, "ownMetadata": rest})
}

// judgeReadBack compares how a stage reads what earlier ones wrote with how they read it, and asks for their tokens.
func (p *Plan) judgeReadBack(stage *StagePlan, view record.View) (v verdicts.Verdict, detail string) {
	records := p.until(stage, view)
	now := records[len(records)-1].Writes
	written := map[string]string{} // by path
	for _, e := range records[:len(records)-1] {
		if e.Writes == nil {
			continue
		}
		for _, w := range e.Writes.Writes {
			written[w.Path] = w.After
		}
	}
	if now == nil || len(written) == 0 {
		return verdicts.Invalid, "no stage before this one wrote anything, or nothing was read"
	}
	changed, comparisons := compareObjects(written, now.Found)
	if len(changed) > 0 {
		return verdicts.Failed, reports.Plural(len(changed), "object") + " changed since the stage before; the first: " + changed[0]
	}
	var others []string
	for _, t := range now.Tokens {
		if t.Seen != t.ID || t.ID == "" {
			others = append(others,
				fmt.Sprintf(
					"the token %s of %s is taken for %s of %q: %s",
					t.ID,
					t.Stage,
					cmp.Or(t.Seen, "none"),
					t.User,
					cmp.Or(t.Error, "no error"),
				),
			)
		}
	}
	if len(others) > 0 {
		return verdicts.Failed, strings.Join(others[:1], "")
	}
	return verdicts.Passed, fmt.Sprintf(
		"%s of earlier stages the same, byte for byte; %s authenticated",
		reports.Plural(comparisons, "object"),
		reports.Plural(len(now.Tokens), "token"),
	)
}
