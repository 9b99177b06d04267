package scenarios

import (
	"reflect"
	"regexp"
	"slices"
)

// allReviews are the reviews of an expectation, those of alternatives included.
func (e *Expect) allReviews() []Review {
	var out []Review
	out = append(out, e.Reviews...)
	for _, a := range e.OneOf {
		out = append(out, a.Reviews...)
	}
	return out
}

func (c *checker) metrics(m *MetricsExpect, path []any) {
	if m != nil {
		c.deltas(m.Attempts, extend(path, "metrics", "attempts"))
		c.deltas(m.Authorizations, extend(path, "metrics", "authorizations"))
	}
}

// alternatives checks oneOf, in which none may say less than another or the same, and messageMatches.
func (c *checker) alternatives(e *Expect, path []any) {
	if _, err := regexp.Compile(e.MessageMatches); err != nil {
		c.fail(extend(path, "messageMatches"), "messageMatches is not a regular expression: %s (expected one of Go's)", err)
	}
	if e.Message != "" && e.MessageMatches != "" {
		c.fail(extend(path, "messageMatches"), "message and messageMatches are given (expected one of the two)")
	}
	if e.OneOf != nil && len(e.OneOf) < 2 {
		c.fail(extend(path, "oneOf"), "oneOf has %d alternatives (expected at least 2)", len(e.OneOf))
	}
	for i, a := range e.OneOf {
		p := extend(path, "oneOf", i)
		for j, r := range a.Reviews {
			c.review(r, extend(p, "reviews", j), false)
		}
		c.metrics(a.Metrics, p)
		switch {
		case a.states() == [3]bool{}:
			c.fail(p, "the alternative is empty (expected message, reviews or metrics)")
		case a.states() != e.OneOf[0].states():
			c.fail(p, "the alternative does not state what the first one does (expected the same fields in each)")
		case a.Message != "" && e.Message+e.MessageMatches != "", a.Reviews != nil && e.Reviews != nil, a.Metrics != nil && e.Metrics != nil:
			c.fail(p, "a field is given in oneOf and beside it (expected one of the two)")
		}
		for j := range i {
			if reflect.DeepEqual(a, e.OneOf[j]) {
				c.fail(p, "the alternative is the same as number %d (expected another)", j+1)
			}
		}
	}
}

// states says which fields are given.
func (a Alternative) states() [3]bool {
	return [3]bool{a.Message != "", a.Reviews != nil, a.Metrics != nil}
}

// reloads checks the steps that change the chain. A scenario that has any needs a chain of its own kind to come
// back to: the ordinary one is where all others run.
func (c *checker) reloads() {
	now := c.s.Requires.Chain
	for i, st := range c.s.Steps {
		path := at("steps", i, "reload")
		switch {
		case st.Reload == "":
			continue
		case c.s.Requires.Chain == "":
			c.fail(path, "reload is given without requires.chain (expected a chain to come back to)")
			return
		case st.Reload == now:
			c.fail(path, "the chain %q is in force already (expected another)", now)
		}
		now = st.Reload
	}
	if now != c.s.Requires.Chain {
		c.fail(at("steps"), "the last reload leaves the chain %q (expected the one of requires.chain, %q)", now, c.s.Requires.Chain)
	}
}

// Reloads tells whether the scenario changes the authorizer chain.
func (s *Scenario) Reloads() bool {
	return slices.ContainsFunc(s.Steps, func(st Step) bool { return st.Reload != "" })
}
