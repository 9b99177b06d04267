package reports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/verdicts"
)

// A leaf is a place of decoded JSON, with the ways in which somebody may edit it. JSON within a text is gone into.
type leaf struct {
	path  string
	edits map[string]func() // each puts something else there
	undo  func()
}

// leaves are the places of a value; put stores another one in its stead, nil if it is the whole.
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

// others are what somebody may put in the place of a value.
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

// beside are the places of evidence of which nothing follows: what the body of an answer that was let through has in it,
// which scenarios state where it matters, the UIDs by which priority and fairness names itself, the order of metrics,
// and what is the same where it is left out; that a review is there once is for the scenarios that state reviews.
var beside = regexp.MustCompile(`^\.steps\[\](\.response\.(body|flowSchemaUID|priorityLevelUID)|\.audit\.responseStatus\.(metadata|apiVersion|kind)|\.metrics (turned round|taken out|null)|\.reviews first twice)`)

// TestEveryLeaf edits each place of the evidence of scenarios that passed, each in several ways, and the digests with it: verify has to
// say that it does not hold. An edit that a reader of JSON cannot tell, such as null for nothing, is none.
func TestEveryLeaf(t *testing.T) {
	dir := t.TempDir()
	written(t, dir)
	base, done, err := open(dir, reportFile)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if base.Report, err = DecodeReport(reportFile, base.Marker); err != nil {
		t.Fatal(err)
	}
	base.readFiles(ofReport)
	base.loadScenarios(nil)
	check := func() string {
		again := *base.Report
		v := &verifier{Verification: &Verification{Report: &again}, files: base.files, set: base.set}
		v.recompute()
		v.holdTogether()
		v.compare("")
		return strings.Join(v.Differences, "\n")
	}
	edits := 0
	for _, r := range base.Report.Cells[0].Results { // of which metrics are to be had
		name := evidencePath(r.Cell, r.Scenario)
		if r.Verdict != verdicts.Passed {
			continue
		}
		var v map[string]any
		d := json.NewDecoder(bytes.NewReader(base.files[name]))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		was, _ := decodeEvidence(base.files[name])
		leaves("", v, nil, func(l leaf) {
			for how, do := range l.edits {
				do()
				data, err := json.Marshal(v)
				l.undo()
				if err != nil {
					t.Fatal(err)
				}
				if e, err := decodeEvidence(data); err == nil && same(was, e) || beside.MatchString(indexes.ReplaceAllString(l.path, "[]")+" "+how) {
					continue
				}
				edits++
				kept := base.files[name]
				if base.files[name] = data; check() == "" {
					t.Errorf("%s%s, %s: it is not noticed", name, l.path, how)
				}
				base.files[name] = kept
			}
		})
	}
	if edits < 300 {
		t.Errorf("%d edits were tried", edits)
	}
}
