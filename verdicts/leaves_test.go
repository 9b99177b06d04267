package verdicts_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
	"github.com/authzconf/authzconf/verdicts/evidencetest"
)

// leaf is a place in decoded JSON, with the ways in which somebody may edit it. JSON within a text has leaves of its
// own.
type leaf struct {
	path  string
	edits map[string]func() // each puts something else there
	undo  func()
}

// leaves visits the places of a value. put replaces the value at such a place; it is nil for the whole.
func leaves(at string, v any, put func(any), visit func(leaf)) {
	if put != nil {
		l := leaf{path: at, edits: map[string]func(){}, undo: func() { put(v) }}
		for how, other := range others(v) {
			l.edits[how] = func() { put(other) }
		}
		visit(l)
	}
	switch x := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			was := x[k]
			visit(leaf{at + "." + k, map[string]func(){"taken out": func() { delete(x, k) }}, func() { x[k] = was }})
			leaves(at+"."+k, was, func(other any) { x[k] = other }, visit)
		}
	case []any:
		for i := range x {
			was := x[i]
			leaves(fmt.Sprintf("%s[%d]", at, i), was, func(other any) { x[i] = other }, visit)
		}
	case string:
		var inner map[string]any
		if put != nil && strings.HasPrefix(x, "{") && json.Unmarshal([]byte(x), &inner) == nil {
			leaves(at+"{}", inner, nil, func(l leaf) {
				for how, do := range l.edits {
					l.edits[how] = func() { do(); text, _ := json.Marshal(inner); put(string(text)) }
				}
				undo := l.undo
				l.undo = func() { undo(); put(x) }
				visit(l)
			})
		}
	}
}

// others returns what somebody may put in the place of a value.
func others(v any) map[string]any {
	switch x := v.(type) {
	case string:
		out := map[string]any{"longer": x + "x", "other": "mutant"}
		if x != "" {
			out["empty"] = ""
		}
		return out
	case json.Number:
		n, _ := x.Float64()
		return map[string]any{"more": json.Number(strconv.FormatFloat(n+1, 'f', -1, 64)), "zero": json.Number("0"), "less": json.Number(strconv.FormatFloat(n-1, 'f', -1, 64))}
	case bool:
		return map[string]any{"flipped": !x}
	case []any:
		if len(x) == 0 {
			return map[string]any{"null": nil}
		}
		out := map[string]any{"first taken out": x[1:], "last taken out": x[:len(x)-1], "first twice": append(x[:1:1], x...), "emptied": []any{}, "null": nil}
		if len(x) > 1 {
			turned := slices.Clone(x)
			slices.Reverse(turned)
			out["turned round"] = turned
		}
		return out
	case map[string]any:
		more := maps.Clone(x)
		more["mutant"] = "mutant"
		return map[string]any{"more fields": more, "emptied": map[string]any{}, "null": nil}
	}
	return nil
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// server matches the places of evidence that an API server writes.
var server = regexp.MustCompile(`^\.steps\[\]\.(response|audit|reviews|metrics)`)

// unjudged matches the places from which nothing follows: the body of an allowed answer, which scenarios state where it
// matters; the names of priority and fairness; the order of metrics; the reason and the time in an event that does not
// have them; the arrival time of a review, which the recorder writes; and places where leaving something out changes
// nothing. That a review is there only once is judged only for scenarios that state reviews.
var unjudged = regexp.MustCompile(`^\.steps\[\](\.reviews\[\]\.at|\.audit\.(annotations\.authorization\.k8s\.io/reason empty|requestReceivedTimestamp taken out)|\.response\.(body|flowSchemaUID|priorityLevelUID)|\.audit\.responseStatus\.(metadata|apiVersion|kind)|\.metrics (turned round|taken out|null)|\.reviews first twice)`)

// TestEveryLeaf edits each place that a server writes in the evidence of scenarios that passed, each in several ways,
// and expects that the judge finds a difference. Edits that a reader of JSON cannot see, such as null instead of
// nothing, do not count.
func TestEveryLeaf(t *testing.T) {
	set, facts := evidencetest.Load(t), evidencetest.LocalFacts(scenarios.GateOn)
	cell := verdicts.Cell{Name: "1.37-gate-on", Provider: "local", Kubernetes: "1.37.1", Gate: scenarios.GateOn}
	edits := 0
	for _, s := range set.All() {
		if ok, _, _ := s.Selected(facts); !ok {
			continue
		}
		was := evidencetest.Perfect(s, cell, facts.Capabilities, "x", evidencetest.Epoch)
		if r := verdicts.Judge(s, was); r.Verdict != verdicts.Passed {
			t.Fatalf("%s: %s", s.ID, r.Reason)
		}
		edits += editLeaves(t, s, was)
	}
	if edits < 300 {
		t.Errorf("%d edits were tried", edits)
	}
}

// editLeaves tries all edits of one piece of evidence, and returns how many there were.
func editLeaves(t *testing.T, s *scenarios.Scenario, was *verdicts.Evidence) (edits int) {
	t.Helper()
	text, err := json.Marshal(was)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	leaves("", v, nil, func(l leaf) {
		place := indexes.ReplaceAllString(l.path, "[]")
		if !server.MatchString(place) {
			return
		}
		for how, do := range l.edits {
			do()
			data, err := json.Marshal(v)
			l.undo()
			if err != nil {
				t.Fatal(err)
			}
			e := &verdicts.Evidence{}
			unreadable := record.DecodeStrictly(data, e) != nil
			if unreadable || reflect.DeepEqual(normalize(t, was), normalize(t, e)) || unjudged.MatchString(place+" "+how) {
				continue
			}
			edits++
			if r := verdicts.Judge(s, e); r.Verdict == verdicts.Passed {
				t.Errorf("%s%s, %s: the judge does not notice", s.ID, l.path, how)
			}
		}
	})
	return edits
}

// normalize returns evidence as a reader of JSON has it, to whom an empty list and a missing one are the same.
func normalize(t *testing.T, e *verdicts.Evidence) (v any) {
	t.Helper()
	text, err := json.Marshal(e)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}
