package certify

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

// fastTimeout is how long the tests wait for a faulty authorizer.
const fastTimeout = 500 * time.Millisecond

// allowsIf makes a faulty authorizer in which nothing was granted, and that allows nevertheless if a condition holds.
func allowsIf(id, finding, description string, when func(s spec) bool) faultyAuthorizer {
	return faultyAuthorizer{id, description, finding, func(*policy.Policy) http.Handler {
		return reference.Handler(func(s spec) scenarios.Decision {
			if when(s) {
				return scenarios.Allow
			}
			return scenarios.NoOpinion
		})
	}}
}

// answersIf makes a faulty authorizer that allows nothing, and answers in its own way if the body of a review meets a
// condition.
func answersIf(
	id, finding, description string,
	when func(body []byte) bool,
	answer func(w http.ResponseWriter, version string),
) faultyAuthorizer {
	return faultyAuthorizer{id, description, finding, func(*policy.Policy) http.Handler {
		right := reference.Handler(func(spec) scenarios.Decision { return scenarios.NoOpinion })
		return early(func(w http.ResponseWriter, body []byte) ([]byte, bool) {
			if !when(body) {
				return body, false
			}
			version := reference.V1
			if bytes.Contains(body, []byte(reference.V1beta1)) {
				version = reference.V1beta1
			}
			answer(w, version)
			return nil, true
		})(right, nil)
	}}
}

// has returns the condition that a body contains a text.
func has(text string) func(body []byte) bool {
	return func(body []byte) bool { return bytes.Contains(body, []byte(text)) }
}

// allow answers that a review is allowed.
func allow(w http.ResponseWriter, version string) {
	_, _ = w.Write(reference.Answer(version, scenarios.Allow))
}

// explainFault answers with no opinion and an error.
func explainFault(problem string) func(w http.ResponseWriter, version string) {
	return func(w http.ResponseWriter, version string) {
		_, _ = fmt.Fprintf(
			w,
			`{"apiVersion":%q,"kind":"SubjectAccessReview","status":{"allowed":false,"evaluationError":%q}}`,
			version,
			problem,
		)
	}
}

// breakOff ends a connection without an answer, as a handler that panics does.
func breakOff(http.ResponseWriter, string) { panic(http.ErrAbortHandler) }

// isVerb returns the condition that the verb of a review begins with a prefix.
func isVerb(prefix string) func(s spec) bool {
	return func(s spec) bool { return strings.HasPrefix(verbOf(s), prefix) }
}

// safeFaults are faulty authorizers without a policy, each for at least one reason of level safe.
func safeFaults() []faultyAuthorizer {
	return slices.Concat(safeVerbFaults(), safeCircumstanceFaults(), safeAnswerFaults())
}

// safeVerbFaults allow verbs that nobody was granted.
func safeVerbFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		allowsIf("allows-everything", impersonates, "everything is allowed", func(spec) bool { return true }),
		allowsIf(
			"only-known-verbs-checked",
			allowsUnknown,
			"verbs that it does not know are allowed",
			func(s spec) bool { return !slices.Contains(known, verbOf(s)) },
		),
		allowsIf(
			"opinion-on-impersonate-only",
			allowsOrdinary,
			"it is there for impersonation, and allows all else",
			func(s spec) bool { return !strings.HasPrefix(verbOf(s), "impersonate") },
		),
		allowsIf(
			"paths-open-to-all",
			allowsPaths,
			"whatever is not a resource is allowed",
			func(s spec) bool { return s.NonResourceAttributes != nil },
		),
		allowsIf("new-modes-open", allowsFuture, "modes of impersonation that it does not know are allowed", func(s spec) bool {
			mode, isMode := strings.CutPrefix(verbOf(s), "impersonate:")
			return isMode && mode != "" && !slices.Contains(impersonationModes, mode)
		}),
		allowsIf(
			"impersonation-left-to-others",
			impersonates,
			"impersonate is allowed, as RBAC will decide",
			func(s spec) bool { return verbOf(s) == "impersonate" },
		),
		allowsIf("prefix-impersonate", actsAsUser, "every verb that begins with impersonate: is allowed", isVerb("impersonate:")),
		allowsIf("accounts-open", actsAsAccount, "service accounts may be impersonated by anybody", isVerb("impersonate:serviceaccount")),
		allowsIf("nodes-open", actsAsNode, "nodes may be impersonated by anybody", isVerb("impersonate:arbitrary-node")),
		allowsIf("own-node-open", actsAsOwnNode, "whoever runs on a node may impersonate it", isVerb("impersonate:associated-node")),
		allowsIf(
			"actions-left-to-identity",
			actsInMode,
			"every verb that begins with impersonate-on: is allowed, as the identity check will decide",
			isVerb("impersonate-on:"),
		),
		allowsIf(
			"one-action-open",
			actsInMode,
			"impersonate-on:serviceaccount:watch is allowed, and nothing else",
			isVerb("impersonate-on:serviceaccount:watch"),
		),
		allowsIf(
			"capitals-open",
			allowsSpelling,
			"a verb with capitals is none that it has a rule for, and is allowed",
			func(s spec) bool { return verbOf(s) != strings.ToLower(verbOf(s)) },
		),
		allowsIf(
			"no-verb-open",
			allowsSpelling,
			"a review without a verb is allowed",
			func(s spec) bool { return s.ResourceAttributes != nil && verbOf(s) == "" },
		),
	}
}

// safeCircumstanceFaults allow, or break, in circumstances that their authors did not try.
func safeCircumstanceFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		allowsIf("pods-trusted", "who-asks-decides", "whoever has the token of a pod may impersonate", func(s spec) bool {
			return len(s.Extra[serviceaccount.PodNameKey]) > 0 && strings.HasPrefix(verbOf(s), "impersonate")
		}),
		allowsIf(
			"nodes-trusted",
			"who-asks-decides",
			"whoever is a node may impersonate",
			func(s spec) bool { return slices.Contains(s.Groups, "system:nodes") },
		),
		allowsIf(
			"extra-believed",
			"who-asks-decides",
			"a scope of cluster-admin in the extra is believed",
			func(s spec) bool { return slices.Contains(s.Extra["scopes"], "cluster-admin") },
		),
		allowsIf(
			"narrowed-lists-open",
			"selectors-change-the-decision",
			"a list that is narrowed by a selector is allowed",
			func(s spec) bool {
				a := s.ResourceAttributes
				if a == nil {
					return false
				}
				return a.FieldSelector != nil || a.LabelSelector != nil
			},
		),
		answersIf(
			"unparsed-selectors-break",
			"bad-request-breaks",
			"a selector that was not parsed breaks it",
			has(`"rawSelector"`),
			breakOff,
		),
		answersIf("v1beta1-open", "versions-differ", "reviews of v1beta1 are not read, and allowed", has(reference.V1beta1), allow),
		answersIf(
			"v1beta1-refused",
			"versions-differ",
			"reviews of v1beta1 are refused",
			has(reference.V1beta1),
			func(w http.ResponseWriter, _ string) { http.Error(w, "v1 only", http.StatusBadRequest) },
		),
		answersIf(
			"new-fields-refused",
			"future-fields-decide",
			"a review with a field that it does not know is refused",
			has("OfTomorrow"),
			func(w http.ResponseWriter, _ string) { http.Error(w, "unknown field", http.StatusBadRequest) },
		),
		answersIf(
			"long-names-break",
			"large-reviews",
			"a name of more than 32 KiB breaks it",
			func(body []byte) bool { return bytes.Contains(body, bytes.Repeat([]byte("n"), 32<<10)) },
			breakOff,
		),
		allowsIf(
			"many-groups-open",
			"large-reviews",
			"a user with more than 1,000 groups is allowed everything",
			func(s spec) bool { return len(s.Groups) > 1000 },
		),
	}
}

// safeAnswerFaults answer wrongly in other ways.
func safeAnswerFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		answersIf("bad-requests-allowed", "bad-request-accepted", "what it cannot read it allows", func(body []byte) bool {
			_, _, err := reference.Decode(body)
			return err != nil
		}, allow),
		{"dies-of-a-bad-request-for-good", "after a request that it cannot read it answers nothing any more", "dies-of-a-bad-request", func(*policy.Policy) http.Handler {
			isDead := false
			return early(func(_ http.ResponseWriter, body []byte) ([]byte, bool) {
				if bytes.HasPrefix(body, []byte("<")) {
					isDead = true
				}
				if isDead {
					panic(http.ErrAbortHandler)
				}
				return body, false
			})(reference.Handler(func(spec) scenarios.Decision { return scenarios.NoOpinion }), nil)
		}},
		answersIf("nothing-asked-is-allowed", "allows-without-attributes", "a review of neither a resource nor a path is allowed", func(body []byte) bool {
			return has(`"spec":{`)(body) && !has("esourceAttributes")(body)
		}, allow),
		answersIf("nobody-is-allowed", "allows-nobody", "a review without a user is allowed", func(body []byte) bool {
			return has("impersonate")(body) && !has(`"user":`)(body)
		}, allow),
		answersIf("breaks-on-colons", "closes-the-connection", "a verb with a colon breaks it", has(`"verb":"impersonate:`), breakOff),
		answersIf(
			"fails-on-colons",
			"http-status",
			"a verb with a colon is answered with 500",
			has(`"verb":"impersonate-on:`),
			func(w http.ResponseWriter, _ string) {
				http.Error(w, "no such relation", http.StatusInternalServerError)
			},
		),
		answersIf(
			"hangs-on-colons",
			faultNoAnswerInTime,
			"a verb with a colon is never answered",
			has(`"verb":"impersonate:`),
			func(http.ResponseWriter, string) { time.Sleep(4 * fastTimeout) },
		),
		answersIf(
			"both-for-impersonation",
			"allowed-and-denied",
			"impersonation is allowed and denied at once",
			has(`"verb":"impersonate`),
			func(w http.ResponseWriter, version string) {
				_, _ = fmt.Fprintf(w, `{"apiVersion":%q,"kind":"SubjectAccessReview","status":{"allowed":true,"denied":true}}`, version)
			},
		),
		answersIf(
			"always-answers-v1",
			"wrong-api-version",
			"the answer has another apiVersion than the review",
			has(reference.V1beta1),
			func(w http.ResponseWriter, _ string) {
				_, _ = w.Write(reference.Answer(reference.V1, scenarios.NoOpinion))
			},
		),
		answersIf(
			"shows-a-stack",
			"shows-its-inside",
			"a verb that it does not know is answered with a stack trace",
			has(`"verb":"impersonate:`),
			explainFault("runtime error: index out of range [2]\ngoroutine 7 [running]:\nmain.parse(0x1)"),
		),
		answersIf(
			"shows-a-backend",
			"shows-its-inside",
			"the error of a backend is handed on as it came",
			has(`"verb":"impersonate:`),
			explainFault("dial tcp 10.0.3.7:5432: connect: connection refused"),
		),
	}
}
