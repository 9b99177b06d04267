package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/authzconf/authzconf/internal/seq"
)

// TrailFormat says how the rows of a dashboard's own audit trail are read. Each row is a JSON object on a line of its
// own.
type TrailFormat struct {
	// Cluster is the name of the cluster in rows. It is empty if rows do not name the cluster. Two clusters have their
	// own names in rows.
	Cluster string `yaml:"cluster,omitempty"`
	// Header is the header in which a client gives a request its correlation ID. If it is left out, rows are found by
	// their time.
	Header string `yaml:"header,omitempty"`
	// Fields are the paths of the fields in a row, such as actor.sub. A field without a path is not compared.
	Fields RowFields `yaml:"fields"`
	// Only has the values that make a line a row. All other lines are left out.
	Only map[string]string `yaml:"only,omitempty"`
}

// RowFields are the paths of a row's fields.
type RowFields struct {
	Actor       string `yaml:"actor"`
	Cluster     string `yaml:"cluster,omitempty"`
	Verb        string `yaml:"verb,omitempty"`
	Resource    string `yaml:"resource,omitempty"`
	Namespace   string `yaml:"namespace,omitempty"`
	Name        string `yaml:"name,omitempty"`
	Correlation string `yaml:"correlation,omitempty"`
}

// Row is what a row must say, where that differs from the Kubernetes words for what arrived.
type Row struct {
	Verb      string `yaml:"verb,omitempty"`
	Resource  string `yaml:"resource,omitempty"`
	Namespace string `yaml:"namespace,omitempty"`
	Name      string `yaml:"name,omitempty"`
	// None means that there must be no row.
	None bool `yaml:"none,omitempty"`
	// Count is how many rows there must be, such as two if the end of a terminal has a row of its own. 0 means 1.
	Count int `yaml:"count,omitempty"`
}

// TrailRow is a row as it was read.
type TrailRow struct {
	// Line is the number of the row's line in what was read, beginning with 1.
	Line int `json:"line"`
	// Request is the number of the last request that was sent before the row was written.
	Request int `json:"request"`

	Actor       string `json:"actor"`
	Cluster     string `json:"cluster,omitempty"`
	Verb        string `json:"verb,omitempty"`
	Resource    string `json:"resource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	Correlation string `json:"correlation,omitempty"`
}

// findMistake returns what is wrong with the format, or "" if nothing is.
func (t *TrailFormat) findMistake(clusters []string) string {
	isHeaderUsed := t.Header != "" && t.Fields.Correlation == ""
	hasTwoClusters := len(clusters) > 0
	isClusterUnknown := !hasTwoClusters && (t.Cluster == "") != (t.Fields.Cluster == "")
	switch {
	case hasTwoClusters && t.Cluster != "":
		return "cluster: with --clusters rows call clusters by these names: expected fields.cluster alone"
	case t.Fields.Actor == "":
		return "expected fields: {actor: …}, the path of the person in a row"
	case t.Header != "" && !httpguts.ValidHeaderFieldName(t.Header):
		return fmt.Sprintf("header: %q is not the name of a header", t.Header)
	case isHeaderUsed:
		return "header gives requests a correlation ID: expected fields.correlation, where a row has it"
	case isClusterUnknown:
		return "cluster and fields.cluster go together: what rows call the cluster, and where"
	}
	return ""
}

// ParseTrail reads lines of a trail strictly. name is the name of the trail, first the number of the first line, and
// request the number of the last request that was sent before. An error has the name and the line, and what was
// expected.
func (t *TrailFormat) ParseTrail(name string, data []byte, first, request int) (rows []TrailRow, err error) {
	line := first - 1
	for text := range bytes.Lines(data) {
		line++
		text = bytes.TrimSpace(text)
		if len(text) == 0 {
			continue
		}
		row, isRow, err := t.parseRow(text)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, line, err)
		}
		if isRow {
			row.Line, row.Request = line, request
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// parseRow reads a line. isRow is false for a line that is left out.
func (t *TrailFormat) parseRow(text []byte) (row TrailRow, isRow bool, err error) {
	var object map[string]any
	isObject := json.Unmarshal(text, &object) == nil && object != nil
	if !isObject && len(t.Only) > 0 { // it does not have the values that make a line a row
		return row, false, nil
	}
	if !isObject {
		return row, false, fmt.Errorf(
			"expected a JSON object, got %.60q (trail.only in the file of --requests says which lines are rows)",
			text,
		)
	}
	for path, want := range t.Only {
		if got, _ := textAt(object, path); got != want {
			return row, false, nil
		}
	}
	for _, field := range []struct {
		to   *string
		path string
	}{
		{&row.Actor, t.Fields.Actor}, {&row.Cluster, t.Fields.Cluster}, {&row.Verb, t.Fields.Verb}, {&row.Resource, t.Fields.Resource},
		{&row.Namespace, t.Fields.Namespace}, {&row.Name, t.Fields.Name}, {&row.Correlation, t.Fields.Correlation},
	} {
		if field.path == "" {
			continue
		}
		if *field.to, err = textAt(object, field.path); err != nil {
			return row, false, err
		}
	}
	return row, true, nil
}

// textAt returns the text at a path, or "" if there is nothing. A key may contain dots itself, as some programs write
// their logs: {"actor.sub": …} and {"actor": {"sub": …}} are the same.
func textAt(object map[string]any, path string) (string, error) {
	if value := object[path]; value != nil {
		text, isText := value.(string)
		if !isText {
			return "", fmt.Errorf("%s: expected text, got %v", path, value)
		}
		return text, nil
	}
	key, rest, isDeeper := strings.Cut(path, ".")
	if !isDeeper || object[key] == nil {
		return "", nil
	}
	inner, isObject := object[key].(map[string]any)
	if !isObject {
		return "", fmt.Errorf("%s: %q is looked for in what is not an object", key, rest)
	}
	return textAt(inner, rest)
}

// String returns a row in one line.
func (r TrailRow) String() string {
	words := []string{r.Verb, r.Resource, r.Name}
	if r.Namespace != "" {
		words = append(words, "in "+r.Namespace)
	}
	words = slices.DeleteFunc(words, func(word string) bool { return word == "" })
	return fmt.Sprintf("line %d: %s: %s", r.Line, cmp.Or(r.Actor, "nobody"), strings.Join(words, " "))
}

// JudgeTrail demands that each row of the dashboard's own audit trail that names one of the people is about a request
// that was sent. It also applies the rule about the rows of each request.
func (j *Judge) JudgeTrail() *Findings {
	out := &Findings{}
	isClaimed := map[int]bool{}
	for n, r := range j.file.Requests {
		rows := j.rowsOf(n)
		for _, row := range rows {
			isClaimed[row.Line] = true
		}
		out.Checks++
		j.compareRows(out, n, r, rows)
	}
	others := 0
	for _, row := range j.evidence.Rows {
		_, isOurs := j.groups[row.Actor]
		switch {
		case isClaimed[row.Line]:
		case isOurs:
			out.fail("a row of no request", "each row is about a request that was sent", "%s", row)
		default:
			others++
		}
	}
	if others > 0 {
		out.note("rows of people who were not tried", others)
	}
	return out
}

// rowsOf returns the rows of the n-th request: those with its correlation ID or, without such IDs, those that were
// written while it was tried.
func (j *Judge) rowsOf(n int) []TrailRow {
	sent := j.evidence.Sent[n]
	return seq.Filter(j.evidence.Rows, func(row TrailRow) bool {
		if j.file.Trail.Header != "" {
			return row.Correlation == sent.Correlation
		}
		return row.Request == n
	})
}

// compareRows demands that a request that writes has one row in the trail, or as many as the file says, and that each row
// names the person who arrived, the cluster, and the verb, resource, namespace and name of the request.
func (j *Judge) compareRows(out *Findings, n int, r Request, rows []TrailRow) {
	want := r.expectRow()
	if len(rows) != want.Count && r.needsRow() {
		got := "no row"
		if len(rows) > 0 {
			got = strings.Join(seq.Map(rows, TrailRow.String), "; ")
		}
		out.fail(r.Name, fmt.Sprintf("%d in the dashboard's trail", want.Count), "%s", got)
		return
	}
	actor := r.As
	if arrivals := j.arrivalsOf(n); len(arrivals) > 0 {
		actor = arrivals[0].user.Username
	}
	cluster := cmp.Or(j.file.Trail.Cluster, r.rowSubject().Cluster)
	fields := j.file.Trail.Fields
	for _, row := range rows {
		for _, field := range []struct{ name, path, want, got string }{
			{"actor", fields.Actor, actor, row.Actor},
			{"cluster", fields.Cluster, cluster, row.Cluster},
			{"verb", fields.Verb, want.Verb, row.Verb},
			{"resource", fields.Resource, want.Resource, row.Resource},
			{"namespace", fields.Namespace, want.Namespace, row.Namespace},
			{"name", fields.Name, want.Name, row.Name},
		} {
			isCompared := field.path != "" && field.want != ""
			if isCompared && field.want != field.got {
				out.fail(r.Name, fmt.Sprintf("%s %q in its row", field.name, field.want), "%q (%s)", field.got, row)
			}
		}
	}
}

// needsRow reports whether the number of rows is judged. A dashboard may also log requests that only read.
func (r Request) needsRow() bool { return r.Row != nil || r.writes() }

// expectRow returns what the rows of a request must say, and how many there must be.
func (r Request) expectRow() Row {
	want := Row{}
	if r.Row != nil {
		want = *r.Row
	}
	if want.Count == 0 && !want.None {
		want.Count = 1
	}
	a := r.rowSubject()
	want.Verb, want.Resource = cmp.Or(want.Verb, a.Verb), cmp.Or(want.Resource, a.Resource)
	want.Namespace, want.Name = cmp.Or(want.Namespace, a.Namespace), cmp.Or(want.Name, a.Name)
	return want
}

// rowSubject returns the request that the rows must be about: the first that writes, or else the first of all.
func (r Request) rowSubject() Attributes {
	if len(r.Arrives) == 0 {
		return Attributes{}
	}
	return r.Arrives[max(0, slices.IndexFunc(r.Arrives, Attributes.writes))]
}
