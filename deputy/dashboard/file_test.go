package dashboard

import (
	"os"
	"strings"
	"testing"
	"time"
)

var people = []string{"alice@corp", "bob@corp"}

func readExample(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("../testdata/dashboard.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParse(t *testing.T) {
	f, err := Parse("dashboard.yaml", readExample(t), people)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Requests) != 10 || f.Pause != 50*time.Millisecond || f.ReviewsWithin != time.Minute || f.Trail.Fields.Actor != "actor.sub" {
		t.Errorf("%+v", f)
	}
	list, deletion := f.Requests[0], f.Requests[1]
	if list.Method != "GET" || list.ReviewOf(list.Arrives[0]) != NoReview || deletion.ReviewOf(deletion.Arrives[0]) != AccessReview {
		t.Errorf("%+v, %+v", list, deletion)
	}
}

// TestParseErrors checks that errors in a file name the place, and say what was expected.
func TestParseErrors(t *testing.T) {
	request := func(fields string) string {
		return "requests:\n- {name: a, as: alice@corp, path: /a, arrives: [], " + fields + "}\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"no requests":           {"pause: 1s\n", "f.yaml: expected requests: at least one"},
		"an unknown field":      {request("verb: get"), "f.yaml:2:"},
		"a negative pause":      {"pause: -1s\n" + request(""), "f.yaml:1:8: expected a duration that is not negative"},
		"an unknown person":     {strings.Replace(request(""), "alice", "carol", 1), `"carol@corp" is none of the people of --identity (expected alice@corp, bob@corp or nobody)`},
		"no path":               {strings.Replace(request(""), "/a", "a", 1), `f.yaml:2:35: "a": expected the path below --proxy`},
		"no arrives":            {strings.Replace(request(""), "arrives: [], ", "", 1), "f.yaml:2:4: expected arrives: what must arrive at the API server, [] if nothing may"},
		"nobody arrives":        {strings.NewReplacer("alice@corp", "nobody", "[]", "[{verb: get, resource: pods}]").Replace(request("")), "nobody sends this request"},
		"no resource":           {strings.Replace(request(""), "[]", "[{verb: get}]", 1), "f.yaml:2:50: expected resource"},
		"no verb":               {strings.Replace(request(""), "[]", "[{resource: pods}]", 1), "expected verb"},
		"two slashes":           {strings.Replace(request(""), "[]", "[{verb: get, resource: a/b/c}]", 1), "expected resource"},
		"a name twice":          {request("") + "- {name: a, as: bob@corp, path: /b, arrives: []}\n", `f.yaml:3:10: "a" is also the name of another request`},
		"an unknown review":     {request("review: maybe"), `"maybe": expected access, rules, either or none`},
		"asks without reviews":  {request("review: none, asks: [{verb: patch, resource: pods}]"), "asks is about access reviews: expected access, rules or either"},
		"asks without a verb":   {request("asks: [{resource: pods}]"), "f.yaml:2:"},
		"a cluster of one":      {request("asks: [{cluster: east, verb: patch, resource: pods}]"), `cluster "east": there is one cluster, unless --clusters names two`},
		"a bad method":          {request(`method: "G T"`), `"G T" is not a method of HTTP`},
		"a bad header":          {request(`headers: {"a b": c}`), `"a b": "c" is not a header`},
		"a negative count":      {request("row: {count: -1}"), "expected how many rows"},
		"a name with a slash":   {strings.Replace(request(""), "name: a", "name: a/b", 1), "expected a name without a slash"},
		"a trail without actor": {"trail: {fields: {verb: verb}}\n" + request(""), "f.yaml:1:9: expected fields: {actor: …}"},
		"a header without path": {"trail: {header: X-Id, fields: {actor: a}}\n" + request(""), "expected fields.correlation"},
		"a cluster and no path": {"trail: {cluster: a, fields: {actor: a}}\n" + request(""), "cluster and fields.cluster go together"},
		"own without a verb":    {"own: [{resource: pods}]\n" + request(""), "f.yaml:1:8: expected verb"},
		"several mistakes":      {request("verb: get, colour: blue"), "colour"},
	} {
		t.Run(name, func(t *testing.T) {
			if f, err := Parse("f.yaml", []byte(c.text), people); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q; %+v", err, c.want, f)
			}
		})
	}
}

func TestParseTrail(t *testing.T) {
	f, err := Parse("dashboard.yaml", readExample(t), people)
	if err != nil {
		t.Fatal(err)
	}
	const good = `{"msg": "audit", "request_id": "1", "cluster": "local", "verb": "delete", "actor": {"sub": "alice@corp"}, "resource": {"resource": "pods", "name": "web"}}`
	rows, err := f.Trail.ParseTrail("trail", []byte("listening on :8080\n"+good+"\n{\"msg\": \"other\"}\n\n"), 7, 3)
	want := TrailRow{
		Line:        8,
		Request:     3,
		Actor:       "alice@corp",
		Cluster:     "local",
		Verb:        "delete",
		Resource:    "pods",
		Name:        "web",
		Correlation: "1",
	}
	if err != nil || len(rows) != 1 || rows[0] != want {
		t.Errorf("%+v, %v", rows, err)
	}
	strict := &TrailFormat{Fields: RowFields{Actor: "actor.sub", Verb: "verb"}}
	rows, err = strict.ParseTrail("trail", []byte(`{"actor.sub": "alice@corp", "verb": "delete"}`), 1, 0)
	if err != nil || rows[0].Actor != "alice@corp" {
		t.Errorf("a key with a dot: %+v, %v", rows, err)
	}
	for text, want := range map[string]string{
		"listening\n":        `trail:1: expected a JSON object, got "listening"`,
		"\n[1]\n":            "trail:2: expected a JSON object",
		"null\n":             "trail:1: expected a JSON object",
		`{"actor": "alice"}`: `trail:1: actor: "sub" is looked for in what is not an object`,
		`{"verb": 3}`:        "trail:1: verb: expected text, got 3",
	} {
		if rows, err := strict.ParseTrail("trail", []byte(text), 1, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q; %+v", text, err, want, rows)
		}
	}
}

// TestParseTwoClusters reads a file about two clusters. What names no cluster is about the first one.
func TestParseTwoClusters(t *testing.T) {
	const text = "trail: {fields: {actor: a, cluster: c}}\nown: [{verb: list, resource: namespaces}]\nrequests:\n" +
		"- {name: a, as: alice@corp, path: /a, arrives: [{verb: get, resource: pods}, {cluster: west, verb: get, resource: pods}], asks: [{verb: delete, resource: pods}]}\n"
	f, err := Parse("f.yaml", []byte(text), people, "east", "west")
	if err != nil {
		t.Fatal(err)
	}
	r := f.Requests[0]
	if r.Arrives[0].Cluster != "east" || r.Arrives[1].Cluster != "west" || r.Asks[0].Cluster != "east" || f.Own[0].Cluster != "" {
		t.Errorf("%+v", f)
	}
	for _, c := range []struct{ from, to, want string }{
		{"cluster: west", "cluster: north", `cluster "north": expected east or west`},
		{"trail: {", "trail: {cluster: east, ", "with --clusters rows call clusters by these names"},
	} {
		_, err := Parse("f.yaml", []byte(strings.Replace(text, c.from, c.to, 1)), people, "east", "west")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.to, err)
		}
	}
}

// FuzzParse checks that a file is accepted, or refused with its place, and that an accepted file can be judged.
func FuzzParse(f *testing.F) {
	f.Add(readExample(f))
	f.Add([]byte("requests:\n- {name: a, as: alice@corp, path: /a, arrives: []}\n"))
	f.Add([]byte("requests: [&a {name: a, as: nobody, path: /, arrives: []}, *a]\n"))
	f.Add([]byte("requests:\n- {name: a, as: alice@corp, path: /a, arrives: [{cluster: west, verb: get, resource: pods}], asks: [{verb: delete, resource: pods}]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, clusters := range [][]string{nil, {"east", "west"}} {
			file, err := Parse("f.yaml", data, people, clusters...)
			if err != nil {
				if !strings.HasPrefix(err.Error(), "f.yaml:") {
					t.Errorf("%q is refused without a place: %v", data, err)
				}
				continue
			}
			e := &Evidence{Sent: make([]SentRequest, len(file.Requests))}
			j, err := NewJudge(file, e, "dashboard", nil)
			if err != nil {
				t.Fatal(err)
			}
			if out := j.JudgeRequest(0); out.Unknown == "" {
				t.Errorf("%q is judged without any event", data)
			}
		}
	})
}

// FuzzParseTrail checks that lines are accepted, or refused with their number.
func FuzzParseTrail(f *testing.F) {
	f.Add([]byte(`{"actor": {"sub": "alice"}, "verb": "delete"}` + "\n"))
	f.Add([]byte("\n\n{}\nno"))
	f.Fuzz(func(t *testing.T, data []byte) {
		format := &TrailFormat{Fields: RowFields{Actor: "actor.sub", Verb: "verb"}}
		rows, err := format.ParseTrail("trail", data, 1, 0)
		if err != nil && !strings.HasPrefix(err.Error(), "trail:") {
			t.Errorf("%q is refused without a place: %v", data, err)
		}
		if lines := strings.Count(string(data), "\n") + 1; len(rows) > lines {
			t.Errorf("%d rows of %d lines", len(rows), lines)
		}
	})
}
