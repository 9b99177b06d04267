package scenarios

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxWait keeps a mistyped wait from holding up a run.
const maxWait = time.Minute

var (
	resourceVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	httpVerbs     = []string{"get", "head", "post", "put", "patch", "delete", "options"}
	modes         = []string{"", "associated-node", "arbitrary-node", "serviceaccount", "user-info", "legacy"}
	// collectionVerbs act on all objects; the others but create on one by name.
	collectionVerbs = []string{"list", "watch", "deletecollection"}
)

func (c *checker) steps() {
	c.missing(at("steps"), len(c.s.Steps) == 0, "at least one step")
	requests := 0
	inForce := map[string]bool{}
	for _, g := range c.s.Grants {
		if g.ID != "" {
			inForce[g.ID] = c.s.InForceAtStart(g.ID)
		}
	}
	for i, st := range c.s.Steps {
		path := at("steps", i)
		if st.Sent() != nil {
			requests++
		}
		if !c.src.failedAt(path) {
			c.action(st, path)
		}
		c.grantStep(st, path, inForce)
		if st.Request != nil {
			c.request(st.Request, extend(path, "request"))
		}
		if st.Expect != nil {
			c.expect(st.Expect, extend(path, "expect"))
		}
		if st.Kubectl != nil {
			c.kubectl(st.Kubectl, extend(path, "kubectl"))
		}
		if st.ExpectClient != nil {
			c.expectClient(st.ExpectClient, extend(path, "expectClient"))
		}
	}
	c.reloads()
	c.failIf(len(c.s.Steps) > 0 && requests == 0, at("steps"), "no step sends a request (expected at least one)")
}

func (c *checker) action(st Step, path []any) {
	var actions []string
	for _, a := range []struct {
		name string
		set  bool
	}{{"request", st.Request != nil}, {"kubectl", st.Kubectl != nil}, {"wait", st.Wait != 0}, {"grant", st.Grant != ""}, {"revoke", st.Revoke != ""}, {"reload", st.Reload != ""}} {
		if a.set {
			actions = append(actions, a.name)
		}
	}
	switch len(actions) {
	case 0:
		c.fail(path, "the step has no action (expected exactly one of request, kubectl, wait, grant, revoke, reload)")
	case 1:
	default:
		c.fail(path, "the step has %s (expected exactly one of request, kubectl, wait, grant, revoke, reload)", strings.Join(actions, " and "))
	}
	c.failIf(st.Request != nil && st.Expect == nil, path, "the request has no expect (expected at least an outcome)")
	c.failIf(st.Request == nil && st.Expect != nil, extend(path, "expect"),
		"expect is given without a request (expected both)")
	c.failIf((st.Kubectl == nil) != (st.ExpectClient == nil), path,
		"only one of kubectl and expectClient is given (expected both)")
	c.failIf(st.Await && (st.Request == nil || st.Request.WantedUser() != "" || st.Expect == nil || st.Expect.Code == 0), extend(path, "await"),
		"await is given without a plain request and its code (expected both, and nobody impersonated: what is shown is not tried again)")
	if before := path[1].(int) - 1; st.Beside && (st.Request == nil || st.Await || before < 0 || c.s.Steps[before].Request == nil || c.s.Steps[before].Await) {
		c.fail(extend(path, "beside"), "beside is given without two requests (expected one in this step and one in the step before)")
	} else if st.Beside && (st.Request.Hold || c.s.Steps[before].Request.Hold) {
		c.fail(extend(path, "beside"), "beside is given with a watch that is held (expected requests that end by themselves)")
	}
	w := time.Duration(st.Wait)
	c.failIf(w < 0 || w > maxWait, extend(path, "wait"), "wait is %s (expected more than 0s and at most %s)", w, maxWait)
}

// grantStep follows which grants are in force.
func (c *checker) grantStep(st Step, path []any, inForce map[string]bool) {
	for _, a := range []struct {
		field, id string
		want      bool // the state before the step
		otherwise string
	}{
		{"grant", st.Grant, false, "is in force already (expected a grant that is not)"},
		{"revoke", st.Revoke, true, "is not in force (expected a grant that is)"},
	} {
		if a.id == "" {
			continue
		}
		now, known := inForce[a.id]
		switch {
		case !known && c.src.failedAt(at("grants")):
			continue
		case !known:
			c.fail(extend(path, a.field), "%s names grant %q, which does not exist (expected the id of one of the grants)", a.field, a.id)
			continue
		case now != a.want:
			c.fail(extend(path, a.field), "grant %q %s", a.id, a.otherwise)
		}
		inForce[a.id] = !a.want
	}
}

func (c *checker) request(r *Request, path []any) {
	c.missing(extend(path, "by"), r.By == "", "the alias of a requestor")
	_, known := c.s.Requestors[r.By]
	c.failIf(!known && r.By != "" && !c.src.failedAt(at("requestors")), extend(path, "by"),
		"by is %q, which is not a requestor (expected one of their aliases)", r.By)
	of := r.Reviewed()
	c.failIf(of != "" && c.s.Requestors[of].ServiceAccount == nil, extend(path, "body"),
		"the token to review is %q (expected the alias of a requestor that is a service account, whose token is sent)", of)
	c.headers(r, path)
	c.wire(r, path)
	c.missing(extend(path, "verb"), r.Verb == "", "a verb")
	resource := r.APIGroup != "" || r.Version != "" || r.Resource != "" || r.Subresource != "" || r.Namespace != "" || r.Name != ""
	switch {
	case r.Path != "" && resource:
		c.fail(path, "the request has a path and fields of a resource (expected one of the two)")
	case r.Path != "":
		enum(c, extend(path, "verb"), r.Verb, httpVerbs...)
		c.failIf(!strings.HasPrefix(r.Path, "/"), extend(path, "path"),
			"path is %q (expected one that begins with /)", r.Path)
	case r.Resource == "" && c.src.failedAt(path):
	case r.Resource == "":
		c.fail(path, "the request has neither path nor resource (expected one of the two)")
	default:
		enum(c, extend(path, "verb"), r.Verb, resourceVerbs...)
		c.objectOf(r, path)
	}
}

// objectOf checks that verb and name fit together, since the HTTP method and path follow from them.
func (c *checker) objectOf(r *Request, path []any) {
	if main, sub, has := strings.Cut(r.Resource, "/"); has {
		c.fail(extend(path, "resource"), "resource is %q (expected resource: %s and subresource: %s)", r.Resource, main, sub)
	}
	switch {
	case slices.Contains(collectionVerbs, r.Verb):
		c.failIf(r.Name != "", extend(path, "name"),
			"%s has a name (expected none; a fieldSelector on metadata.name selects one object)", r.Verb)
	case r.Verb == "create":
		c.failIf(r.Name != "" && r.Subresource == "", extend(path, "name"),
			"create has a name (expected it in the body; with a subresource it goes here)")
	case r.Name == "" && slices.Contains(resourceVerbs, r.Verb):
		c.fail(extend(path, "name"), "%s has no name (expected the name of an object)", r.Verb)
	}
}

func (c *checker) expect(e *Expect, path []any) {
	c.missing(extend(path, "outcome"), e.Outcome == "", "one of "+joinStrings(outcomes))
	enum(c, extend(path, "outcome"), e.Outcome, outcomes...)
	if expected := codeProblem(e.Outcome, e.Code); expected != "" && e.Code != 0 {
		c.fail(extend(path, "code"), "code %d does not go with outcome %s (expected %s)", e.Code, e.Outcome, expected)
	}
	if e.User != nil {
		c.missing(extend(path, "user", "name"), e.User.Name == "", "the resulting user's name")
	}
	for i, r := range e.Reviews {
		c.review(r, extend(path, "reviews", i), false)
	}
	if a := e.Audit; a != nil && a.Decision != nil {
		enum(c, extend(path, "audit", "decision"), *a.Decision, "allow", "forbid")
	}
	for field, users := range map[string][]User{"backend": e.Backend, "admission": e.Admission} {
		for i, u := range users {
			c.missing(extend(path, field, i, "name"), u.Name == "", "the name of the user that the "+field+" was told of")
		}
		c.failIf(users != nil && !slices.Contains(c.s.Requires.Capabilities, Aggregation), extend(path, field),
			"%s is given without the capability aggregation (expected it in requires)", field)
	}
	for i, line := range e.Log {
		c.pattern(extend(path, "log", i), "log", line)
	}
	c.metrics(e.Metrics, path)
	c.alternatives(e, path)
}

var outcomes = []Outcome{Allowed, ImpersonationForbidden, RequestForbidden, EscalationForbidden, BadRequest, Unauthenticated, HeadersTooLarge, ServerError}

// denials are the outcomes that need a twin. The other refusals may have one.
var (
	denials  = []Outcome{ImpersonationForbidden, RequestForbidden, EscalationForbidden, BadRequest}
	refusals = append(slices.Clone(denials), Unauthenticated, HeadersTooLarge, ServerError)
)

// refusalCodes are the status codes that follow from an outcome.
var refusalCodes = map[Outcome]int{
	ImpersonationForbidden: 403, RequestForbidden: 403, EscalationForbidden: 403,
	BadRequest: 400, Unauthenticated: 401, HeadersTooLarge: 431,
}

// codeProblem says what code an outcome has if it cannot be this one. What comes after an allowed authorization is
// open, 403 by admission included.
func codeProblem(o Outcome, code int) (expected string) {
	switch only := refusalCodes[o]; {
	case only != 0 && code != only:
		return strconv.Itoa(only)
	case o == ServerError && (code < 500 || code > 599):
		return "500 to 599"
	case o == Allowed && (code < 100 || code > 599 || code == 401):
		return "a status code, not 401"
	}
	return ""
}

func (c *checker) review(r Review, path []any, nested bool) {
	if r.Unordered != nil {
		rest := r
		rest.Unordered = nil
		switch {
		case nested:
			c.fail(path, "unordered is within unordered (expected reviews)")
		case len(r.Unordered) < 2:
			c.fail(extend(path, "unordered"), "unordered has %d reviews (expected at least 2)", len(r.Unordered))
		case !reflect.ValueOf(rest).IsZero():
			c.fail(path, "unordered is given with other fields (expected it alone)")
		}
		for i, u := range r.Unordered {
			c.review(u, extend(path, "unordered", i), true)
		}
		return
	}
	enum(c, extend(path, "by"), r.By, ByRequestor, ByImpersonated)
	// The final review of a method that is no verb has none.
	c.missing(extend(path, "verb"), r.Verb == "" && r.By != ByImpersonated, "the verb of the review")
	c.missing(extend(path, "decision"), r.Decision == "", "one of allow, deny, noOpinion")
	enum(c, extend(path, "decision"), r.Decision, Allow, Deny, NoOpinion)
	if (r.Path == "") == (r.Resource == "") && !c.src.failedAt(path) {
		has := map[bool]string{true: "both path and resource", false: "neither path nor resource"}[r.Path != ""]
		c.fail(path, "the review has %s (expected exactly one)", has)
	}
}

func (c *checker) deltas(list []MetricDelta, path []any) {
	for i, d := range list {
		p := extend(path, i)
		c.failIf(!slices.Contains(modes, d.Mode), extend(p, "mode"),
			"mode is %q (expected one of %s, or \"\")", d.Mode, strings.Join(modes[1:], ", "))
		c.missing(extend(p, "decision"), d.Decision == "", "allowed or denied")
		enum(c, extend(p, "decision"), d.Decision, "allowed", "denied")
		c.failIf(d.Count < 1, extend(p, "count"),
			"count is %d (expected at least 1; a series that must not move is left out)", d.Count)
		for _, before := range list[:i] {
			c.failIf(before.Mode == d.Mode && before.Decision == d.Decision, p,
				"the series with mode %q and decision %q is listed twice (expected each once)", d.Mode, d.Decision)
		}
	}
}
