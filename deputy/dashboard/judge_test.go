package dashboard

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const judgedFile = `
reviewsWithin: 10s
trail: {fields: {actor: actor, verb: verb}}
requests:
- {name: look, as: alice@corp, path: /a, arrives: [{verb: list, resource: pods, namespace: shop}]}
- {name: delete, as: alice@corp, method: DELETE, path: /b, arrives: [{verb: delete, resource: pods, namespace: shop, name: web}]}
`

// logLine returns an audit event of second n, made by the dashboard as a person, or as itself if that is empty.
func logLine(n int, as, verb, resource, name, more string) json.RawMessage {
	impersonated := ""
	if as != "" {
		impersonated = fmt.Sprintf(`"impersonatedUser": {"username": %q},`, as)
	}
	group := ""
	if strings.HasPrefix(resource, "selfsubject") {
		group = `"apiGroup": "authorization.k8s.io",`
	}
	return json.RawMessage(
		fmt.Sprintf(`{"auditID": "%d-%s-%s", "stage": "ResponseComplete", "user": {"username": "dashboard"}, %s %s "verb": %q,
		"objectRef": {%s "resource": %q, "namespace": "shop", "name": %q}, "responseStatus": {"code": 200},
		"requestReceivedTimestamp": "2026-01-01T00:00:%02d.000000Z", "stageTimestamp": "2026-01-01T00:00:%02d.500000Z"}`,
			n, verb, resource, impersonated, more, verb, group, resource, name, n, n),
	)
}

func fenceLine(n int, marker string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"auditID": "fence-%d", "stage": "ResponseComplete", "user": {"username": "admin"}, "verb": "list",
		"requestURI": "/api/v1/namespaces/default/pods?fieldSelector=metadata.name%%3D%s", "requestReceivedTimestamp": "2026-01-01T00:00:%02d.000000Z"}`, n, marker, n))
}

const reviewObject = `"requestObject": {"spec": {"resourceAttributes": {"verb": "delete", "resource": "pods", "namespace": "shop", "name": "web"}}},`

// TestJudge judges the events of two requests that are right except for one thing.
func TestJudge(t *testing.T) {
	look := logLine(11, "alice@corp", "list", "pods", "", "")
	review := logLine(21, "alice@corp", "create", "selfsubjectaccessreviews", "", reviewObject)
	deletion := logLine(23, "alice@corp", "delete", "pods", "web", "")
	fences := []json.RawMessage{fenceLine(10, "f0"), fenceLine(20, "f1"), fenceLine(50, "end")}
	changed := func(event json.RawMessage, from, to string) json.RawMessage {
		return json.RawMessage(strings.ReplaceAll(string(event), from, to))
	}
	for name, c := range map[string]struct {
		events []json.RawMessage
		want   string
	}{
		"all right":                     {[]json.RawMessage{look, review, deletion}, ""},
		"nothing":                       {nil, "look: nothing arrived; the dashboard answered 200; delete: nothing arrived"},
		"in the wrong window":           {[]json.RawMessage{review, deletion, changed(look, "00:11", "00:31")}, "look: nothing arrived"},
		"before the first":              {[]json.RawMessage{changed(look, "00:11", "00:05"), review, deletion}, "look: nothing arrived"},
		"another name":                  {[]json.RawMessage{look, review, changed(deletion, `"web"`, `"db"`)}, "delete: delete pods db in shop as alice@corp"},
		"as another":                    {[]json.RawMessage{look, review, changed(deletion, "alice", "bob")}, `delete: it was made as "bob@corp"`},
		"an administrator":              {[]json.RawMessage{look, review, changed(deletion, `"username": "alice@corp"`, `"username": "alice@corp", "groups": ["system:masters"]`)}, `with the group "system:masters"`},
		"refused":                       {[]json.RawMessage{look, review, changed(deletion, "200", "403")}, "delete: the API server refused it"},
		"without a review":              {[]json.RawMessage{look, deletion}, "delete: there is none"},
		"a review behind":               {[]json.RawMessage{look, changed(review, "00:21", "00:31"), deletion}, "delete: there is none before it"},
		"a review of another":           {[]json.RawMessage{look, changed(review, "alice", "bob"), deletion}, `delete: the review was made as "bob@corp"`},
		"a review of another namespace": {[]json.RawMessage{look, changed(review, `"namespace": "shop", "name": "web"}}`, `"namespace": "bank"}}`), deletion}, "there is none about that"},
		"a review of all names":         {[]json.RawMessage{look, changed(review, `, "name": "web"}}`, `}}`), deletion}, ""},
		"a rules review":                {[]json.RawMessage{look, changed(review, "selfsubjectaccessreviews", "selfsubjectrulesreviews"), deletion}, "there is none about that"},
		"an old review":                 {[]json.RawMessage{look, changed(review, "00:21", "00:11"), deletion}, "delete: it was answered 11.5s before"},
		"a review that says no":         {[]json.RawMessage{look, changed(review, `"requestObject"`, `"responseObject": {"status": {"allowed": false}}, "requestObject"`), deletion}, "delete: it said no"},
		"a review that says nothing":    {[]json.RawMessage{look, changed(review, reviewObject, ""), deletion}, "unknown: the audit log has access reviews without what they ask"},
		"one write more":                {[]json.RawMessage{look, review, deletion, logLine(24, "alice@corp", "delete", "secrets", "web", "")}, "delete: delete secrets web in shop as alice@corp"},
		"one read more":                 {[]json.RawMessage{look, review, deletion, logLine(24, "alice@corp", "get", "secrets", "web", "")}, ""},
		"one read as itself":            {[]json.RawMessage{look, review, deletion, logLine(24, "", "get", "secrets", "web", "")}, "delete: get secrets web in shop as the dashboard itself"},
		"one read as another":           {[]json.RawMessage{look, review, deletion, logLine(24, "bob@corp", "get", "secrets", "web", "")}, "delete: get secrets web in shop as bob@corp"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := judgeEvents(t, append(c.events, fences...)); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
	got := judgeEvents(t, []json.RawMessage{look, review, deletion, fences[0], fences[2]})
	if !strings.Contains(
		got,
		"unknown: the audit log does not show the request past the dashboard that was sent before request 2",
	) {
		t.Errorf("without a fence: %q", got)
	}
}

// TestJudgeAsks judges a page that has to ask about the actions of its buttons, and must not do them.
func TestJudgeAsks(t *testing.T) {
	const file = "requests:\n- {name: page, as: alice@corp, path: /a, review: either, arrives: [], asks: [{verb: delete, resource: pods, namespace: shop, name: web}]}\n"
	fences := []json.RawMessage{fenceLine(10, "f0"), fenceLine(50, "end")}
	review := logLine(21, "alice@corp", "create", "selfsubjectaccessreviews", "", reviewObject)
	rules := logLine(21, "alice@corp", "create", "selfsubjectrulesreviews", "", `"requestObject": {"spec": {"namespace": "shop"}},`)
	changed := func(event json.RawMessage, from, to string) json.RawMessage {
		return json.RawMessage(strings.ReplaceAll(string(event), from, to))
	}
	for name, c := range map[string]struct {
		events []json.RawMessage
		want   string
	}{
		"a yes":                      {[]json.RawMessage{review}, ""},
		"a no":                       {[]json.RawMessage{changed(review, `"requestObject"`, `"responseObject": {"status": {"allowed": false}}, "requestObject"`)}, ""},
		"rules":                      {[]json.RawMessage{rules}, ""},
		"rules of another namespace": {[]json.RawMessage{changed(rules, `{"namespace": "shop"}`, `{"namespace": "bank"}`)}, "page: there is none about that"},
		"nothing":                    {nil, "page: there is none"},
		"of another":                 {[]json.RawMessage{changed(review, "alice", "bob")}, `page: the review was made as "bob@corp"`},
		"behind the page":            {[]json.RawMessage{changed(review, "00:21", "00:51")}, "page: there is none"},
		"and does it":                {[]json.RawMessage{review, logLine(23, "alice@corp", "delete", "pods", "web", "")}, "page: delete pods web in shop as alice@corp"},
		"and asks nothing legible":   {[]json.RawMessage{changed(review, reviewObject, "")}, "unknown: "},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Parse("f.yaml", []byte(file), people)
			if err != nil {
				t.Fatal(err)
			}
			got := judgeFile(
				t,
				f,
				&Evidence{Sent: []SentRequest{{Fence: "f0", Code: 200}}, End: "end", Events: append(c.events, fences...)},
			)
			if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// TestJudgeTwoClusters judges a request that arrives at the wrong cluster of two, or for which the wrong one is asked.
func TestJudgeTwoClusters(t *testing.T) {
	const file = "requests:\n- {name: delete, as: alice@corp, method: DELETE, path: /b, arrives: [{cluster: west, verb: delete, resource: pods, namespace: shop, name: web}]}\n"
	fences := []json.RawMessage{fenceLine(10, "f0"), fenceLine(50, "end")}
	review := logLine(21, "alice@corp", "create", "selfsubjectaccessreviews", "", reviewObject)
	deletion := logLine(23, "alice@corp", "delete", "pods", "web", "")
	reading := logLine(24, "alice@corp", "list", "pods", "", "")
	for name, c := range map[string]struct {
		east, west []json.RawMessage
		want       string
	}{
		"right":                 {nil, []json.RawMessage{review, deletion}, ""},
		"at the wrong one":      {[]json.RawMessage{review, deletion}, nil, "delete: delete pods web in shop of the cluster east as alice@corp"},
		"at both":               {[]json.RawMessage{deletion}, []json.RawMessage{review, deletion}, "delete: delete pods web in shop of the cluster east as alice@corp"},
		"asked at the other":    {[]json.RawMessage{review}, []json.RawMessage{deletion}, "delete: there is none at that cluster: another one was asked"},
		"a read at the other":   {[]json.RawMessage{reading}, []json.RawMessage{review, deletion}, "delete: list pods in shop of the cluster east as alice@corp"},
		"a read where it is":    {nil, []json.RawMessage{review, deletion, reading}, ""},
		"one log without fence": {nil, nil, "unknown: the audit log of the cluster west does not show"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Parse("f.yaml", []byte(file), people, "east", "west")
			if err != nil {
				t.Fatal(err)
			}
			e := &Evidence{Sent: []SentRequest{{Fence: "f0", Code: 200}}, End: "end", Events: append(c.east, fences...)}
			if c.east != nil || c.west != nil {
				e.SecondClusterEvents = append(c.west, fences...)
			}
			if got := judgeFile(t, f, e); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// judgeFile returns what is found in evidence about the requests of a file.
func judgeFile(t *testing.T, f *File, e *Evidence) string {
	t.Helper()
	j, err := NewJudge(f, e, "dashboard", map[string][]string{"alice@corp": nil, "bob@corp": nil})
	if err != nil {
		t.Fatal(err)
	}
	return j.describeFindings()
}

// judgeEvents returns what is found in the events of the two requests.
func judgeEvents(t *testing.T, events []json.RawMessage) string {
	t.Helper()
	return newTestJudge(t, &Evidence{Sent: []SentRequest{{Fence: "f0", Code: 200}, {Fence: "f1", Code: 200}}, End: "end", Events: events}).describeFindings()
}

// describeFindings returns the findings of all requests on one line.
func (j *Judge) describeFindings() string {
	var found []string
	for n := range j.file.Requests {
		out := j.JudgeRequest(n)
		for _, f := range out.Failures {
			found = append(found, f.What+": "+f.Got)
		}
		if out.Unknown != "" {
			found = append(found, "unknown: "+out.Unknown)
		}
	}
	return strings.Join(found, "; ")
}

func newTestJudge(t *testing.T, e *Evidence) *Judge {
	t.Helper()
	f, err := Parse("f.yaml", []byte(judgedFile), people)
	if err != nil {
		t.Fatal(err)
	}
	j, err := NewJudge(f, e, "dashboard", map[string][]string{"alice@corp": nil, "bob@corp": nil})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestRowsByTime checks that rows without a correlation ID belong to the request during which they were written.
func TestRowsByTime(t *testing.T) {
	right := TrailRow{Line: 1, Request: 1, Actor: "alice@corp", Verb: "delete"}
	for name, c := range map[string]struct {
		rows []TrailRow
		want string
	}{
		"right":              {[]TrailRow{right}, ""},
		"none":               {nil, "delete: no row"},
		"of another":         {[]TrailRow{{Line: 1, Request: 1, Actor: "bob@corp", Verb: "delete"}}, `delete: "bob@corp"`},
		"twice":              {[]TrailRow{right, {Line: 2, Request: 1, Actor: "alice@corp", Verb: "delete"}}, "line 1: alice@corp: delete; line 2"},
		"of a read, too":     {[]TrailRow{right, {Line: 2, Request: 0, Actor: "alice@corp", Verb: "list"}}, ""},
		"of a read by bob":   {[]TrailRow{right, {Line: 2, Request: 0, Actor: "bob@corp", Verb: "list"}}, `look: "bob@corp"`},
		"with another verb":  {[]TrailRow{{Line: 1, Request: 1, Actor: "alice@corp", Verb: "apply"}}, `delete: "apply"`},
		"of nobody known":    {[]TrailRow{right, {Line: 2, Request: 5, Actor: "carol@corp", Verb: "list"}}, ""},
		"of no such request": {[]TrailRow{right, {Line: 2, Request: 5, Actor: "bob@corp", Verb: "list"}}, "a row of no request"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newTestJudge(t, &Evidence{Sent: []SentRequest{{Fence: "f0"}, {Fence: "f1"}}, End: "end", Rows: c.rows})
			var found []string
			for _, f := range j.JudgeTrail().Failures {
				found = append(found, f.What+": "+f.Got)
			}
			if got := strings.Join(found, "; "); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}
