package scenarios

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxWait keeps a mistyped wait from delaying a run.
const maxWait = time.Minute

var (
	resourceVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	httpVerbs     = []string{"get", "head", "post", "put", "patch", "delete", "options"}
	modes         = []string{"", "associated-node", "arbitrary-node", "serviceaccount", "user-info", "legacy"}
	// collectionVerbs act on all objects. All other verbs except create act on one object by its name.
	collectionVerbs = []string{"list", "watch", "deletecollection"}
)

func (c *checker) checkSteps() {
	c.require(at("steps"), len(c.s.Steps) == 0, "at least one step")
	inForce := map[string]bool{}
	for _, g := range c.s.Grants {
		if g.ID != "" {
			inForce[g.ID] = c.s.InForceAtStart(g.ID)
		}
	}
	for i, st := range c.s.Steps {
		path := at("steps", i)
		if !c.src.failedAt(path) {
			c.checkAction(st, i, path)
		}
		c.checkGrantStep(st, path, inForce)
		c.checkParts(st, path)
	}
	c.checkReloads()
	sendsRequest := slices.ContainsFunc(c.s.Steps, func(st Step) bool { return st.Sent() != nil })
	c.failIf(len(c.s.Steps) > 0 && !sendsRequest, at("steps"), "no step sends a request (expected at least one)")
}

// checkParts checks each part of a step by itself.
func (c *checker) checkParts(st Step, path []any) {
	if st.Request != nil {
		c.checkRequest(st.Request, extend(path, "request"))
	}
	if st.Expect != nil {
		c.checkExpect(st.Expect, extend(path, "expect"))
	}
	if st.Kubectl != nil {
		c.checkKubectl(st.Kubectl, extend(path, "kubectl"))
	}
	if st.ExpectClient != nil {
		c.checkClient(st.ExpectClient, extend(path, "expectClient"))
	}
}

// checkAction checks that a step does exactly one thing and that its parts fit together. number is the index of the
// step.
func (c *checker) checkAction(st Step, number int, path []any) {
	var actions []string
	for _, a := range []struct {
		name    string
		isGiven bool
	}{
		{"request", st.Request != nil},
		{"kubectl", st.Kubectl != nil},
		{"wait", st.Wait != 0},
		{"grant", st.Grant != ""},
		{"revoke", st.Revoke != ""},
		{"reload", st.Reload != ""},
	} {
		if a.isGiven {
			actions = append(actions, a.name)
		}
	}
	switch len(actions) {
	case 0:
		c.fail(path, "the step has no action (expected exactly one of request, kubectl, wait, grant, revoke, reload)")
	case 1:
	default:
		c.fail(
			path,
			"the step has %s (expected exactly one of request, kubectl, wait, grant, revoke, reload)",
			strings.Join(actions, " and "),
		)
	}
	c.failIf(st.Request != nil && st.Expect == nil, path, "the request has no expect (expected at least an outcome)")
	c.failIf(st.Request == nil && st.Expect != nil, extend(path, "expect"),
		"expect is given without a request (expected both)")
	c.failIf((st.Kubectl == nil) != (st.ExpectClient == nil), path,
		"only one of kubectl and expectClient is given (expected both)")
	c.failIf(st.Await && !st.isPlain(), extend(path, "await"),
		"await is given without a plain request and its code (expected both, and nobody impersonated: what is shown is not tried again)")
	if st.Beside {
		c.checkBeside(number, extend(path, "beside"))
	}
	w := time.Duration(st.Wait)
	c.failIf(w < 0 || w > maxWait, extend(path, "wait"), "wait is %s (expected more than 0s and at most %s)", w, maxWait)
}

// isPlain reports whether a step sends a request that impersonates nobody, and states the code of the answer.
func (st Step) isPlain() bool {
	if st.Request == nil || st.Expect == nil {
		return false
	}
	return st.Request.WantedUser() == "" && st.Expect.Code != 0
}

// sendsOnce reports whether a step sends a request exactly once.
func (st Step) sendsOnce() bool { return st.Request != nil && !st.Await }

// checkBeside checks that a step and the one before it send requests that can be sent at the same time.
func (c *checker) checkBeside(number int, path []any) {
	if number == 0 || !c.s.Steps[number].sendsOnce() || !c.s.Steps[number-1].sendsOnce() {
		c.fail(path, "beside is given without two requests (expected one in this step and one in the step before)")
		return
	}
	c.failIf(c.s.Steps[number].Request.Hold || c.s.Steps[number-1].Request.Hold, path,
		"beside is given with a watch that is held (expected requests that end by themselves)")
}

// checkGrantStep keeps track of which grants are in force.
func (c *checker) checkGrantStep(st Step, path []any, inForce map[string]bool) {
	for _, a := range []struct {
		field, id string
		isInForce bool // before the step
		otherwise string
	}{
		{"grant", st.Grant, false, "is in force already (expected a grant that is not)"},
		{"revoke", st.Revoke, true, "is not in force (expected a grant that is)"},
	} {
		if a.id == "" {
			continue
		}
		isInForce, known := inForce[a.id]
		switch {
		case !known && c.src.failedAt(at("grants")):
			continue
		case !known:
			c.fail(extend(path, a.field), "%s names grant %q, which does not exist (expected the id of one of the grants)", a.field, a.id)
			continue
		case isInForce != a.isInForce:
			c.fail(extend(path, a.field), "grant %q %s", a.id, a.otherwise)
		}
		inForce[a.id] = !a.isInForce
	}
}

func (c *checker) checkRequest(r *Request, path []any) {
	c.require(extend(path, "by"), r.By == "", "the alias of a requestor")
	_, known := c.s.Requestors[r.By]
	c.failIf(!known && r.By != "" && !c.src.failedAt(at("requestors")), extend(path, "by"),
		"by is %q, which is not a requestor (expected one of their aliases)", r.By)
	c.checkCredentials(r, path)
	alias := r.Reviewed()
	c.failIf(alias != "" && c.s.Requestors[alias].ServiceAccount == nil, extend(path, "body"),
		"the token to review is %q (expected the alias of a requestor that is a service account, whose token is sent)", alias)
	c.checkHeaders(r, path)
	c.checkWire(r, path)
	c.require(extend(path, "verb"), r.Verb == "", "a verb")
	hasResource := r.APIGroup != "" || r.Version != "" || r.Resource != "" || r.Subresource != "" || r.Namespace != "" || r.Name != ""
	switch {
	case r.Path != "" && hasResource:
		c.fail(path, "the request has a path and fields of a resource (expected one of the two)")
	case r.Path != "":
		checkEnum(c, extend(path, "verb"), r.Verb, httpVerbs...)
		c.failIf(!strings.HasPrefix(r.Path, "/"), extend(path, "path"),
			"path is %q (expected one that begins with /)", r.Path)
	case r.Resource == "" && c.src.failedAt(path):
	case r.Resource == "":
		c.fail(path, "the request has neither path nor resource (expected one of the two)")
	default:
		checkEnum(c, extend(path, "verb"), r.Verb, resourceVerbs...)
		c.checkObject(r, path)
	}
}

// checkObject checks that verb and name fit together, because the HTTP method and path follow from them.
func (c *checker) checkObject(r *Request, path []any) {
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

func (c *checker) checkExpect(e *Expect, path []any) {
	c.require(extend(path, "outcome"), e.Outcome == "", "one of "+joinStrings(outcomes))
	checkEnum(c, extend(path, "outcome"), e.Outcome, outcomes...)
	if expected := codeProblem(e.Outcome, e.Code); expected != "" && e.Code != 0 {
		c.fail(extend(path, "code"), "code %d does not go with outcome %s (expected %s)", e.Code, e.Outcome, expected)
	}
	c.failIf(e.OrTooLarge && e.Outcome != Allowed, extend(path, "orTooLarge"),
		"orTooLarge is given with the outcome %s (expected it with allowed, which a server may refuse in its place)", e.Outcome)
	if e.User != nil {
		c.require(extend(path, "user", "name"), e.User.Name == "", "the resulting user's name")
	}
	for i, r := range e.Reviews {
		c.checkReview(r, extend(path, "reviews", i), false)
	}
	c.checkAudit(e.Audit, extend(path, "audit"))
	for field, users := range map[string][]User{"backend": e.Backend, "admission": e.Admission} {
		for i, u := range users {
			c.require(extend(path, field, i, "name"), u.Name == "", "the name of the user that the "+field+" was told of")
		}
		c.failIf(users != nil && !slices.Contains(c.s.Requires.Capabilities, Aggregation), extend(path, field),
			"%s is given without the capability aggregation (expected it in requires)", field)
	}
	for i, line := range e.Log {
		c.checkPattern(extend(path, "log", i), "log", line)
	}
	c.checkMetrics(e.Metrics, path)
	c.checkAlternatives(e, path)
}

var outcomes = []Outcome{
	Allowed,
	ImpersonationForbidden,
	RequestForbidden,
	EscalationForbidden,
	BadRequest,
	Unauthenticated,
	HeadersTooLarge,
	ServerError,
}

// denials are the outcomes that need a twin. The other refusals may have one.
var (
	denials  = []Outcome{ImpersonationForbidden, RequestForbidden, EscalationForbidden, BadRequest}
	refusals = append(slices.Clone(denials), Unauthenticated, HeadersTooLarge, ServerError)
)

// refusalCodes are the status codes that follow from outcomes.
var refusalCodes = map[Outcome]int{
	ImpersonationForbidden: 403, RequestForbidden: 403, EscalationForbidden: 403,
	BadRequest: 400, Unauthenticated: 401, HeadersTooLarge: 431,
}

// codeProblem returns the codes that an outcome can have if it cannot have the given one, and "" if it can. After an
// allowed authorization any code is possible, including 403 by admission.
func codeProblem(o Outcome, code int) (expected string) {
	isStatusCode, isServerError := code >= 100 && code <= 599, code >= 500 && code <= 599
	isPossible := isStatusCode && code != 401
	switch only := refusalCodes[o]; {
	case only != 0 && code != only:
		return strconv.Itoa(only)
	case o == ServerError && !isServerError:
		return "500 to 599"
	case o == Allowed && !isPossible:
		return "a status code, not 401"
	}
	return ""
}

func (c *checker) checkReview(r Review, path []any, nested bool) {
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
			c.checkReview(u, extend(path, "unordered", i), true)
		}
		return
	}
	checkEnum(c, extend(path, "by"), r.By, ByRequestor, ByImpersonated)
	// The final review of a method that is not a verb has no verb.
	c.require(extend(path, "verb"), r.Verb == "" && r.By != ByImpersonated, "the verb of the review")
	c.require(extend(path, "decision"), r.Decision == "", "one of allow, deny, noOpinion")
	checkEnum(c, extend(path, "decision"), r.Decision, Allow, Deny, NoOpinion)
	c.requireOne(path, "the review has %s (expected exactly one)", "path", r.Path != "", "resource", r.Resource != "")
}

func (c *checker) checkDeltas(list []MetricDelta, path []any) {
	for i, d := range list {
		p := extend(path, i)
		c.failIf(!slices.Contains(modes, d.Mode), extend(p, "mode"),
			"mode is %q (expected one of %s, or \"\")", d.Mode, strings.Join(modes[1:], ", "))
		c.require(extend(p, "decision"), d.Decision == "", "allowed or denied")
		checkEnum(c, extend(p, "decision"), d.Decision, "allowed", "denied")
		c.failIf(d.Count < 1, extend(p, "count"),
			"count is %d (expected at least 1; a series that must not move is left out)", d.Count)
		for _, before := range list[:i] {
			c.failIf(before.Mode == d.Mode && before.Decision == d.Decision, p,
				"the series with mode %q and decision %q is listed twice (expected each once)", d.Mode, d.Decision)
		}
	}
}
