package certification

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// inOrder decides by the first effect in the order that has a true condition.
func inOrder(order ...vectors.Decision) func(vectors.ConditionSet, reference.Evaluator) vectors.Decision {
	return func(set vectors.ConditionSet, truth reference.Evaluator) vectors.Decision {
		for _, e := range order {
			one := set
			one.Conditions = slices.DeleteFunc(slices.Clone(set.Conditions), func(c vectors.Condition) bool { return c.Effect != e })
			if got, _, _ := reference.EvaluateSet(one, truth); got == e && len(one.Conditions) > 0 {
				if e != vectors.NoOpinion || isMet(one, truth) {
					return e
				}
			}
		}
		return vectors.NoOpinion
	}
}

// isMet reports whether any condition is true, or an error.
func isMet(set vectors.ConditionSet, truth reference.Evaluator) bool {
	return slices.ContainsFunc(set.Conditions, func(c vectors.Condition) bool {
		is, err := truth(c)
		return is || err != nil
	})
}

// lenient treats an error in the conditions of an effect as a value.
func lenient(e vectors.Decision, value bool) func(vectors.ConditionSet, reference.Evaluator) vectors.Decision {
	return func(set vectors.ConditionSet, truth reference.Evaluator) vectors.Decision {
		got, _, _ := reference.EvaluateSet(set, func(c vectors.Condition) (bool, error) {
			is, err := truth(c)
			if err != nil && c.Effect == e {
				return value, nil
			}
			return is, err
		})
		return got
	}
}

// evaluations returns faulty authorizers that derive the wrong decision from conditions.
func evaluations() []faulty {
	return []faulty{
		concludes("allow-first", "deny-condition-wins", "Allow conditions are evaluated first, and one that is true ends it", inOrder(vectors.Allow, vectors.Deny, vectors.NoOpinion)),
		concludes("no-opinion-last", "no-opinion-condition-wins", "NoOpinion conditions come behind Allow conditions", inOrder(vectors.Deny, vectors.Allow, vectors.NoOpinion)),
		concludes("no-opinion-denies", "no-opinion-condition-wins", "a true NoOpinion condition denies", func(set vectors.ConditionSet, truth reference.Evaluator) vectors.Decision {
			for _, c := range set.Conditions {
				if is, err := truth(c); is && err == nil && c.Effect == vectors.NoOpinion {
					return vectors.Deny
				}
			}
			got, _, _ := reference.EvaluateSet(set, truth)
			return got
		}),
		concludes("deny-error-ignored", "error-in-deny-denies", "an error in a Deny condition counts as false", lenient(vectors.Deny, false)),
		concludes("no-opinion-error-ignored", "error-in-no-opinion", "an error in a NoOpinion condition counts as false", lenient(vectors.NoOpinion, false)),
		concludes("allow-error-allows", "error-in-allow-allows-nothing", "an error in an Allow condition counts as true", lenient(vectors.Allow, true)),
		concludes("allow-error-denies", "error-in-allow-allows-nothing", "an error in an Allow condition denies", func(set vectors.ConditionSet, truth reference.Evaluator) vectors.Decision {
			got, _, err := reference.EvaluateSet(set, truth)
			if err != nil && got == vectors.NoOpinion {
				return vectors.Deny
			}
			return got
		}),
		concludes("false-denies", "no-match-is-no-opinion", "conditions that are all false deny", func(set vectors.ConditionSet, truth reference.Evaluator) vectors.Decision {
			if !isMet(set, truth) {
				return vectors.Deny
			}
			got, _, _ := reference.EvaluateSet(set, truth)
			return got
		}),
		evaluates("any-type", "unknown-type-evaluated", "conditions of a type that it does not know are evaluated as its own", func(a *reference.Authorizer, r *request) response {
			for i := range r.ConditionSets {
				for k := range r.ConditionSets[i].Conditions {
					r.ConditionSets[i].Conditions[k].Type = a.Type
				}
			}
			return a.Evaluate(r)
		}),
		evaluates("both-answers", "allowed-and-denied", "what conditions do not allow is allowed and denied at once", func(a *reference.Authorizer, r *request) response {
			out := a.Evaluate(r)
			out.Allowed, out.Denied = true, !out.Allowed
			return out
		}).in(wire.Seed),
	}
}

// data returns faulty authorizers that evaluate other data than was sent.
func data() []faulty {
	return []faulty{
		sees("old-for-new", "old-object-is-not-object", "the stored object is judged in place of the one that is sent", func(d *vectors.ConditionData) {
			if d.OldObject != nil && d.Object != nil {
				d.Object = d.OldObject
			}
		}),
		sees("new-for-old", "object-is-not-old-object", "the object that is sent is judged in place of the stored one", func(d *vectors.ConditionData) {
			if d.OldObject != nil && d.Object != nil {
				d.OldObject = d.Object
			}
		}),
		sees("absent-is-new", "absent-object-matches-nothing", "for a stored object that is not there the sent one is taken", func(d *vectors.ConditionData) {
			if d.OldObject == nil {
				d.OldObject = d.Object
			}
		}),
		sees("options-lost", "options-are-data", "the options of the operation are not passed on", func(d *vectors.ConditionData) { d.Options = nil }),
		sees("always-update", "operation-is-data", "every operation but a delete is taken for an UPDATE", func(d *vectors.ConditionData) {
			if d.Operation != "DELETE" {
				d.Operation = "UPDATE"
			}
		}),
		evaluates("first-object-only", "deletecollection-has-conditions", "once a DELETE was allowed by a set of conditions, they are not judged for further objects", firstObjectOnly()),
	}
}

// firstObjectOnly allows a deletion if the same conditions have allowed a deletion before.
func firstObjectOnly() func(*reference.Authorizer, *request) response {
	var seen sync.Map
	return func(a *reference.Authorizer, r *request) response {
		key := ""
		for _, s := range r.ConditionSets {
			for _, c := range s.Conditions {
				key += c.ID + c.Condition + c.Type
			}
		}
		if _, ok := seen.Load(key); ok && r.Operation == "DELETE" {
			return response{Allowed: true}
		}
		out := a.Evaluate(r)
		if out.Allowed && r.Operation == "DELETE" {
			seen.Store(key, true)
		}
		return out
	}
}

// cached returns a faulty authorizer that remembers answers under a key which lacks an attribute.
func cached(id, finding, description string, key func(spec) any) faulty {
	return faulty{ID: id, Description: description, Finding: finding, make: func(a *reference.Authorizer) http.Handler {
		var seen sync.Map
		return reference.Handler(a.Wire, phases{Authorizer: a, first: func(s spec) status {
			k, _ := json.Marshal(key(s))
			if v, ok := seen.Load(string(k)); ok {
				return v.(status)
			}
			st := a.Review(s)
			if st.ConditionsChain != nil {
				seen.Store(string(k), st)
			}
			return st
		}})
	}}
}

// cachedWithout returns a faulty authorizer that remembers its answers by the whole review, but not their conditions.
func cachedWithout(id, finding, description string) faulty {
	return faulty{ID: id, Description: description, Finding: finding, make: func(a *reference.Authorizer) http.Handler {
		var seen sync.Map
		return reference.Handler(a.Wire, phases{Authorizer: a, first: func(s spec) status {
			key, _ := json.Marshal(s)
			st := a.Review(s)
			if _, isRemembered := seen.LoadOrStore(string(key), true); isRemembered {
				st.ConditionsChain = nil
			}
			return st
		}})
	}}
}

// states returns faulty authorizers that remember what they must not, or that decide by the wrong state.
func states() []faulty {
	return []faulty{
		cached("cache-across-users", "users-kept-apart", "conditions are remembered without the user", func(s spec) any {
			s.User = ""
			return s
		}),
		cached("cache-across-groups", "groups-are-looked-at", "conditions are remembered without all but the last of the groups", func(s spec) any {
			s.Groups = s.Groups[max(0, len(s.Groups)-1):]
			return s
		}),
		cachedWithout("cache-without-conditions", "not-deterministic", "an answer is remembered without its conditions"),
		cached("cache-across-policies", "policy-change-takes-effect", "conditions are remembered longer than the policies", func(s spec) any { return s }),
		{ID: "judges-by-new-policies", Description: "the second phase looks the conditions up in the policies of the moment", Finding: "policy-change-between-phases", make: func(a *reference.Authorizer) http.Handler {
			return reference.Handler(a.Wire, phases{Authorizer: a, second: func(r *request) response {
				for _, s := range r.ConditionSets {
					for _, c := range s.Conditions {
						if !slices.ContainsFunc(a.Snapshot().Policies(), func(p vectors.Policy) bool { return p.ID == c.ID }) {
							return response{Reason: "the policy is gone"}
						}
					}
				}
				return a.Evaluate(r)
			}})
		}},
		{ID: "keeps-last-conditions", Description: "the conditions given last are evaluated, not those that are sent", Finding: "interleaved-reviews", make: func(a *reference.Authorizer) http.Handler {
			var mu sync.Mutex
			var last []vectors.ConditionSet
			return reference.Handler(a.Wire, phases{Authorizer: a, first: func(s spec) status {
				st := a.Review(s)
				mu.Lock()
				defer mu.Unlock()
				if st.ConditionsChain != nil {
					last = st.ConditionsChain
				}
				return st
			}, second: func(r *request) response {
				mu.Lock()
				defer mu.Unlock()
				if len(r.ConditionSets) > 0 && len(r.ConditionSets[0].Conditions) > 0 && r.ConditionSets[0].Conditions[0].Type == a.Type {
					r.ConditionSets = last
				}
				return a.Evaluate(r)
			}})
		}},
	}
}
