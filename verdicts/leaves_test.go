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
		return map[string]any{
			"more": json.Number(strconv.FormatFloat(n+1, 'f', -1, 64)),
			"zero": json.Number("0"),
			"less": json.Number(strconv.FormatFloat(n-1, 'f', -1, 64)),
		}
	case bool:
		return map[string]any{"flipped": !x}
	case []any:
		if len(x) == 0 {
			return map[string]any{"null": nil}
		}
		out := map[string]any{
			"first taken out": x[1:],
			"last taken out":  x[:len(x)-1],
			"first twice":     append(x[:1:1], x...),
			"emptied":         []any{},
			"null":            nil,
		}
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

// exemption is a set of edits from which nothing follows, and the reason.
type exemption struct {
	edits *regexp.Regexp
	why   string
}

// exempt makes an exemption. Its pattern is for the place behind the step, a blank, and what is done to the place.
func exempt(pattern, why string) exemption {
	return exemption{regexp.MustCompile(`^\.steps\[\](?:` + pattern + `)$`), why}
}

// unjudged are the edits that the judge need not notice. Whoever writes a rule about one of these places takes it out.
var unjudged = []exemption{
	exempt(`\.response\.body (longer|other|empty|taken out)`, "scenarios state the body of an allowed answer where it matters"),
	exempt(`\.response\.body\{\}\.kind .+`, "scenarios state the kind of an allowed answer where it matters"),
	exempt(`\.response\.body\{\}\.apiVersion .+`, "scenarios state the API version of an allowed answer where it matters"),
	exempt(`\.response\.body\{\}\.items .+`, "scenarios state the objects of an allowed answer where they matter"),
	exempt(`\.response\.body\{\}\.metadata(\.resourceVersion)? .+`, "the metadata of a list or Status says nothing about authorization"),
	exempt(`\.response\.body\{\}\.details more fields`, "a newer API server may say more"),
	exempt(
		`\.audit\.annotations\.authorization\.k8s\.io/reason empty`,
		"the Node authorizer stands before RBAC and allows without a reason",
	),
	exempt(
		`\.audit\.requestReceivedTimestamp taken out`,
		"without this time there is nothing to compare the other times of the event with",
	),
	exempt(`\.audit\.responseStatus\.(apiVersion|kind) .+`, "the type of the field is known"),
	exempt(`\.audit\.responseStatus\.metadata (null|taken out)`, "the metadata of a Status says nothing about authorization"),
	exempt(`\.metrics turned round`, "metrics have no order"),
	exempt(`\.metrics (null|taken out)`, "where no metric increases, no list is the same as an empty one"),
	exempt(`\.reviews first twice`, "that a review is there only once is judged only for scenarios that state reviews"),
	exempt(`\.reviews\[\]\.at taken out`, "the recorder writes when a review arrived"),
}

// findExemption returns the exemption of an edit, or nil if there is none.
func findExemption(edit string) *exemption {
	i := slices.IndexFunc(unjudged, func(x exemption) bool { return x.edits.MatchString(edit) })
	if i < 0 {
		return nil
	}
	return &unjudged[i]
}

// TestEveryLeaf edits each place that a server writes in the evidence of scenarios that passed, each in several ways,
// and expects that the judge finds a difference. Edits that a reader of JSON cannot see, such as null instead of
// nothing, do not count. An exemption that no edit needs any more is an error, too.
func TestEveryLeaf(t *testing.T) {
	set, facts := evidencetest.Load(t), evidencetest.LocalFacts(scenarios.GateOn)
	cell := verdicts.Cell{Name: "1.37-gate-on", Provider: "local", Kubernetes: "1.37.1", Gate: scenarios.GateOn}
	edits, used := 0, map[string]bool{}
	for _, s := range set.All() {
		if ok, _, _ := s.Selected(facts); !ok {
			continue
		}
		was := evidencetest.Perfect(s, cell, facts.Capabilities, "x", evidencetest.Epoch)
		if r := verdicts.Judge(s, was); r.Verdict != verdicts.Passed {
			t.Fatalf("%s: %s", s.ID, r.Reason)
		}
		edits += editLeaves(t, s, was, used)
	}
	if edits < 300 {
		t.Errorf("%d edits were tried", edits)
	}
	for _, x := range unjudged {
		if !used[x.edits.String()] {
			t.Errorf("the judge notices every edit of %s (%s): take it out of unjudged", x.edits, x.why)
		}
	}
}

// editLeaves tries all edits of one piece of evidence, and returns how many the judge had to notice. It adds the
// exemptions without which it would have failed to used.
func editLeaves(t *testing.T, s *scenarios.Scenario, was *verdicts.Evidence, used map[string]bool) (edits int) {
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
			if unreadable || reflect.DeepEqual(normalize(t, was), normalize(t, e)) {
				continue
			}
			exemption := findExemption(place + " " + how)
			if exemption == nil {
				edits++
			}
			isNoticed := verdicts.Judge(s, e).Verdict != verdicts.Passed
			switch {
			case isNoticed:
			case exemption == nil:
				t.Errorf("%s%s, %s: the judge does not notice", s.ID, l.path, how)
			default:
				used[exemption.edits.String()] = true
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
