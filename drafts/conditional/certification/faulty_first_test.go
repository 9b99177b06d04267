package certification

import (
	"bytes"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// set is a chain of one set, as the authorizer writes it.
func set(a *reference.Authorizer, all ...vectors.Condition) []vectors.ConditionSet {
	for i := range all {
		all[i].Type, all[i].ID = a.Type, qualify(all[i].ID)
	}
	if a.Wire.Rules.Union {
		return []vectors.ConditionSet{{Conditions: all}}
	}
	return []vectors.ConditionSet{{AuthorizerName: a.Name, FailureMode: vectors.FailDeny, Conditions: all}}
}

// aware reports whether the client accepts conditions.
func aware(s spec) bool { return s.Mode() != vectors.None }

// without returns conditions without the conditions of an effect.
func without(e vectors.Decision, in []vectors.Condition) []vectors.Condition {
	return slices.DeleteFunc(slices.Clone(in), func(c vectors.Condition) bool { return c.Effect == e })
}

// decisions returns faulty authorizers that answer with conditions at the wrong time.
func decisions() []faulty {
	return []faulty{
		reviews(
			"unasked-conditions",
			"conditions-not-asked-for",
			"conditions are sent to a client that did not ask for any",
			func(a *reference.Authorizer, s spec) status {
				s.ConditionalAuthorization = &vectors.ConditionalAuthorizationConfiguration{Mode: vectors.HumanReadable}
				return a.Review(s)
			},
		),
		changes(
			"unaware-allowed",
			"allows-without-conditions",
			"what depends on conditions is allowed to a client that takes none",
			func(s spec, st *status) {
				if !aware(s) && !st.Allowed && !st.Denied && strings.Contains(st.Reason, "conditions") {
					st.Allowed = true
				}
			},
		),
		reviews(
			"always-conditional",
			"concrete-allow-stays-concrete",
			"an Allow is written as a condition that is always true",
			func(a *reference.Authorizer, s spec) status {
				st := a.Review(s)
				if st.Allowed && aware(s) {
					return status{ConditionsChain: set(a, vectors.Condition{ID: "always", Effect: vectors.Allow, Condition: "true"})}
				}
				return st
			},
		),
		reviews(
			"deny-as-condition",
			"concrete-deny-stays-concrete",
			"a Deny is written as a condition that is always true",
			func(a *reference.Authorizer, s spec) status {
				st := a.Review(s)
				if st.Denied && aware(s) {
					return status{ConditionsChain: set(a, vectors.Condition{ID: "always", Effect: vectors.Deny, Condition: "true"})}
				}
				return st
			},
		),
		changes(
			"no-opinion-to-deny",
			"no-match-is-no-opinion",
			"what no policy is about is denied, so that nobody behind is asked",
			func(_ spec, st *status) {
				st.Denied = st.Denied ||
					!st.Allowed && st.ConditionsChain == nil
			},
		),
	}
}

// strengths returns faulty authorizers that have the wrong order of effects, or misread a request.
func strengths() []faulty {
	return []faulty{
		reviews(
			"allow-hides-deny",
			"conditional-deny-beats-allow",
			"an Allow without conditions is given although a conditional Deny may come",
			func(a *reference.Authorizer, s spec) status {
				d := a.Snapshot().Decide(s.SubjectAccessReviewSpec)
				for _, c := range d.Conditions {
					if c.Effect == vectors.Allow && c.Condition == "true" {
						return status{Allowed: true}
					}
				}
				return a.Status(d, s)
			},
		),
		reviews(
			"soft-deny-ends-it",
			"soft-deny-beats-allow",
			"a NoOpinion without conditions hides a conditional Deny",
			func(a *reference.Authorizer, s spec) status {
				d := a.Snapshot().Decide(s.SubjectAccessReviewSpec)
				if len(d.Conditions) > 0 && !d.CanBecomeAllowed() {
					return status{}
				}
				return a.Status(d, s)
			},
		),
		reviews(
			"unpruned",
			"never-true-is-pruned",
			"a policy about another verb still gives a condition",
			func(a *reference.Authorizer, s spec) status {
				st := a.Review(s)
				r := s.ResourceAttributes
				if st.ConditionsChain == nil && !st.Allowed && !st.Denied && aware(s) && r != nil && r.Verb == "update" {
					as := *r
					as.Verb, s.ResourceAttributes = "create", &as
					for _, c := range a.Review(s).ConditionsChain {
						for _, one := range c.Conditions {
							one.Condition = "(" + one.Condition + ") && false"
							return status{ConditionsChain: set(a, one)}
						}
					}
				}
				return st
			},
		),
		reviews("patch-as-create", "patch-is-no-create", "a patch is decided by the policies about create", verb("patch", "create")),
		reviews(
			"deletecollection-unknown",
			"deletecollection-has-conditions",
			"a deletecollection is allowed at once to whom a delete is allowed on conditions",
			func(a *reference.Authorizer, s spec) status {
				st := a.Review(s)
				if r := s.ResourceAttributes; r != nil && r.Verb == "deletecollection" && st.ConditionsChain != nil {
					return status{Allowed: true}
				}
				return st
			},
		),
		reviews(
			"one-policy-breaks-all",
			"deny-kept-when-allow-errs",
			"one policy that cannot be evaluated switches all of them off",
			func(a *reference.Authorizer, s spec) status {
				if d := a.Snapshot().Decide(s.SubjectAccessReviewSpec); d.Err != nil {
					return status{EvaluationError: "a policy is broken"}
				}
				return a.Review(s)
			},
		),
	}
}

// verb decides a request with one verb as if it had another verb.
func verb(of, as string) func(*reference.Authorizer, spec) status {
	return func(a *reference.Authorizer, s spec) status {
		if r := s.ResourceAttributes; r != nil && r.Verb == of {
			changed := *r
			changed.Verb, s.ResourceAttributes = as, &changed
		}
		return a.Review(s)
	}
}

// replace replaces the first occurrence of a text in answers.
func replace(from, to string) func(http.Handler) http.Handler {
	return func(right http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			answer := httptest.NewRecorder()
			right.ServeHTTP(answer, req)
			w.WriteHeader(answer.Code)
			_, _ = w.Write(bytes.Replace(answer.Body.Bytes(), []byte(from), []byte(to), 1))
		})
	}
}

// formFaults returns faulty authorizers whose answers have the wrong form.
func formFaults() []faulty {
	return []faulty{
		changes(
			"allowed-and-chain",
			"allowed-beside-conditions",
			"a conditional answer is allowed as well, for clients that do not look further",
			func(_ spec, st *status) {
				st.Allowed = st.Allowed || st.ConditionsChain != nil
			},
		),
		raw("empty-chain", "empty-chain", "an answer without conditions has an empty chain", func(right http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path == reference.ConditionsPath {
					right.ServeHTTP(w, req)
					return
				}
				answer := httptest.NewRecorder()
				right.ServeHTTP(answer, req)
				out := answer.Body.Bytes()
				if answer.Code == http.StatusOK && !bytes.Contains(out, []byte("conditionsChain")) {
					out = bytes.Replace(out, []byte(`"allowed":`), []byte(`"conditionsChain":[],"allowed":`), 1)
				}
				w.WriteHeader(answer.Code)
				_, _ = w.Write(out)
			})
		}).in(wire.Seed),
		raw("answers-another-kind", "wrong-kind", "conditions are answered with a SubjectAccessReview", replace(wire.ConditionsKind, wire.AccessKind)),
		raw("nameless", "no-authorizer-name", "the sets have no authorizerName", replace(`"authorizerName":"`+reference.DefaultName+`"`, `"authorizerName":""`)).in(wire.Seed),
		changes("mixed-set", "set-of-no-kind", "a set has conditions and is denied", func(_ spec, st *status) {
			for i := range st.ConditionsChain {
				st.ConditionsChain[i].Denied = true
			}
		}).in(wire.Seed),
		changes("same-name-twice", "duplicate-authorizers", "two sets have the name of one authorizer", func(_ spec, st *status) {
			st.ConditionsChain = slices.Concat(st.ConditionsChain, st.ConditionsChain)
		}).in(wire.Seed),
	}
}

// contents returns faulty authorizers whose conditions are wrong.
func contents() []faulty {
	return []faulty{
		changes("duplicate-ids", "duplicate-ids", "every condition has the same ID", func(_ spec, st *status) {
			for _, s := range st.ConditionsChain {
				for i := range s.Conditions {
					s.Conditions[i].ID = "condition"
				}
			}
		}),
		rewrites("reserved-ids", "invalid-id", "IDs begin with k8s.io/", func(_ spec, c *vectors.Condition) { c.ID = "k8s.io/" + c.ID }),
		rewrites("unknown-effect", "unknown-effect", "NoOpinion is written SoftDeny", func(_ spec, c *vectors.Condition) {
			if c.Effect == vectors.NoOpinion {
				c.Effect = "SoftDeny"
			}
		}).in(wire.Seed),
		rewrites("no-type", "invalid-type", "conditions have no type", func(_ spec, c *vectors.Condition) { c.Type = "" }).in(wire.Seed),
		rewrites("random-ids", "not-deterministic", "the same review has other IDs each time", func(_ spec, c *vectors.Condition) {
			c.ID = qualify(strings.ToLower(rand.Text()))
		}),
		reviews(
			"long-conditions",
			"condition-too-long",
			"a condition of more bytes than are allowed is sent",
			func(a *reference.Authorizer, s spec) status {
				d := a.Snapshot().Decide(s.SubjectAccessReviewSpec)
				if len(d.Conditions) > 0 && aware(s) {
					return status{ConditionsChain: set(a, d.Conditions...)}
				}
				return a.Status(d, s)
			},
		),
		reviews(
			"cuts-conditions",
			"long-condition-fails-closed",
			"a condition of more bytes than are allowed is cut off",
			func(a *reference.Authorizer, s spec) status {
				d := a.Snapshot().Decide(s.SubjectAccessReviewSpec)
				for i, c := range d.Conditions {
					d.Conditions[i].Condition = c.Condition[:min(len(c.Condition), a.Wire.Rules.Condition)]
				}
				return a.Status(d, s)
			},
		),
		reviews(
			"forgets-deny",
			"deny-condition-wins",
			"Deny conditions are left out where an Allow condition is",
			func(a *reference.Authorizer, s spec) status {
				d := a.Snapshot().Decide(s.SubjectAccessReviewSpec)
				if d.CanBecomeAllowed() {
					d.Conditions = without(vectors.Deny, d.Conditions)
				}
				return a.Status(d, s)
			},
		),
		rewrites(
			"not-specialized",
			"known-data-is-constant",
			"the user's name stays a variable, which is empty in the second phase",
			func(s spec, c *vectors.Condition) {
				c.Condition = strings.ReplaceAll(c.Condition, `"`+s.User+`"`, `""`)
			},
		),
		rewrites(
			"any-for-all",
			"macros-keep-their-meaning",
			"a condition about all elements is written as one about any",
			func(_ spec, c *vectors.Condition) {
				c.Condition = strings.ReplaceAll(c.Condition, ".all(", ".exists(")
			},
		),
	}
}

// upstream returns faulty authorizers that break the rules of the newest revision only.
func upstream() []faulty {
	two := func(a *reference.Authorizer, s spec, names ...string) status {
		st := a.Review(s)
		if len(st.ConditionsChain) == 0 {
			return st
		}
		first, second := st.ConditionsChain[0], vectors.ConditionSet{AuthorizerName: names[1]}
		first.AuthorizerName = names[0]
		st.ConditionsChain = []vectors.ConditionSet{first, second}
		return st
	}
	return []faulty{
		rewrites("ids-without-domain", "invalid-id", "IDs have no domain", func(_ spec, c *vectors.Condition) {
			_, c.ID, _ = strings.Cut(c.ID, "/")
		}),
		rewrites("types-without-domain", "invalid-type", "types have no domain", func(_ spec, c *vectors.Condition) { c.Type = "cel" }),
		rewrites(
			"long-descriptions",
			"description-too-long",
			"a description of more than 1,024 bytes is sent",
			func(_ spec, c *vectors.Condition) {
				c.Description = strings.Repeat("why ", 300)
			},
		),
		changes(
			"explains-conditions",
			"reason-beside-conditions",
			"a reason stands beside a conditional decision",
			func(_ spec, st *status) {
				if st.ConditionsChain != nil {
					st.Reason = "it depends"
				}
			},
		),
		changes(
			"concrete-as-conditional",
			"concrete-chain",
			"an Allow is a conditionalDecision of the type Allow",
			func(s spec, st *status) {
				if st.Allowed && aware(s) {
					st.Allowed, st.Reason = false, ""
					st.ConditionsChain = []vectors.ConditionSet{{Allowed: true}}
				}
			},
		),
		reviews(
			"union-of-one-name",
			"duplicate-authorizers",
			"a union has one authorizer twice",
			func(a *reference.Authorizer, s spec) status {
				return two(a, s, "first", "first")
			},
		),
		reviews(
			"names-that-are-not",
			"invalid-authorizer-name",
			"an authorizer of a union has a name that is not a DNS name",
			func(a *reference.Authorizer, s spec) status {
				return two(a, s, "first", "The Second")
			},
		),
		raw(
			"two-members",
			"answer-unreadable",
			"a decision has the member of another type, too",
			replace(`"type":"ConditionsMap",`, `"type":"ConditionsMap","allow":{},`),
		),
		raw("another-uid", "wrong-uid", "the response has the uid of no review", replace(`"uid":"`, `"uid":"0`)),
		raw("no-uid", "wrong-uid", "the response has no uid", replace(`"uid":`, `"id":`)),
	}
}
