package certify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

// raw makes a handler that decodes reviews and leaves the writing of the answer to a function. What it cannot decode it
// passes to the right handler.
func raw(
	write func(w http.ResponseWriter, body []byte, version string, d scenarios.Decision),
) func(http.Handler, *policy.Policy) http.Handler {
	return func(right http.Handler, p *policy.Policy) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			body, _ := io.ReadAll(io.LimitReader(req.Body, 3<<20))
			req.Body = io.NopCloser(bytes.NewReader(body))
			version, spec, err := reference.Decode(body)
			if err != nil || req.Method != http.MethodPost {
				right.ServeHTTP(w, req)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			write(w, body, version, p.Decide(spec))
		})
	}
}

// status writes a right answer with another status.
func status(format string, args ...any) func(w http.ResponseWriter, _ []byte, version string, d scenarios.Decision) {
	return func(w http.ResponseWriter, _ []byte, version string, d scenarios.Decision) {
		text := fmt.Sprintf(format, args...)
		text = strings.ReplaceAll(text, "ALLOWED", fmt.Sprint(d == scenarios.Allow))
		_, _ = fmt.Fprintf(w, `{"apiVersion":%q,"kind":"SubjectAccessReview","status":%s}`, version, text)
	}
}

// early makes a handler that sees a review before the right handler does.
func early(see func(w http.ResponseWriter, body []byte) (change []byte, done bool)) func(http.Handler, *policy.Policy) http.Handler {
	return func(right http.Handler, _ *policy.Policy) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			body, _ := io.ReadAll(io.LimitReader(req.Body, 4<<20))
			body, done := see(w, body)
			if !done {
				req.Body = io.NopCloser(bytes.NewReader(body))
				right.ServeHTTP(w, req)
			}
		})
	}
}

// versionFaults are wrong about the versions of the API, and about what is new in them.
func versionFaults() []faultyAuthorizer {
	old := []byte(reference.V1beta1)
	return []faultyAuthorizer{
		speaks(
			"v1beta1-groups-lost",
			"versions-differ",
			"groups are read under the name that v1 has for them, in v1beta1 too",
			early(func(_ http.ResponseWriter, body []byte) ([]byte, bool) {
				if bytes.Contains(body, old) {
					body = bytes.Replace(body, []byte(`"group":[`), []byte(`"lost":[`), 1)
				}
				return body, false
			}),
		),
		speaks(
			"v1-only",
			"versions-differ",
			"reviews of v1beta1 are refused",
			early(func(w http.ResponseWriter, body []byte) ([]byte, bool) {
				if bytes.Contains(body, old) {
					http.Error(w, "v1 only", http.StatusBadRequest)
					return nil, true
				}
				return body, false
			}),
		),
		speaks(
			"strict-attributes",
			"unknown-fields-refused",
			"a review with an attribute that it does not know is refused",
			func(right http.Handler, _ *policy.Policy) http.Handler {
				return early(func(w http.ResponseWriter, body []byte) ([]byte, bool) {
					var review struct {
						Spec struct{ ResourceAttributes, NonResourceAttributes json.RawMessage }
					}
					_ = json.Unmarshal(body, &review)
					for attributes, into := range map[*json.RawMessage]any{&review.Spec.ResourceAttributes: &authorizationv1.ResourceAttributes{}, &review.Spec.NonResourceAttributes: &authorizationv1.NonResourceAttributes{}} {
						d := json.NewDecoder(bytes.NewReader(*attributes))
						d.DisallowUnknownFields()
						if err := d.Decode(into); err != nil && strings.Contains(err.Error(), "unknown field") {
							http.Error(w, "unknown field", http.StatusBadRequest)
							return nil, true
						}
					}
					return body, false
				})(right, nil)
			},
		),
		speaks(
			"strict-decoding",
			"unknown-fields-refused",
			"a review with a field that it does not know is refused",
			func(right http.Handler, _ *policy.Policy) http.Handler {
				return early(func(w http.ResponseWriter, body []byte) ([]byte, bool) {
					var review authorizationv1.SubjectAccessReview
					d := json.NewDecoder(bytes.NewReader(body))
					d.DisallowUnknownFields()
					err := d.Decode(&review)
					if err != nil && !bytes.Contains(body, old) &&
						strings.Contains(err.Error(), "unknown field") {
						http.Error(w, "unknown field", http.StatusBadRequest)
						return nil, true
					}
					return body, false
				})(right, nil)
			},
		),
	}
}

// named makes a faulty authorizer that decides correctly and writes its answer itself.
func named(
	id, finding, description string,
	write func(w http.ResponseWriter, body []byte, version string, d scenarios.Decision),
) faultyAuthorizer {
	return speaks(id, finding, description, raw(write))
}

// answerFaults are wrong in the form of every answer.
func answerFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		named(
			"both-flags",
			"allowed-and-denied",
			"what is not allowed is denied and allowed at once",
			func(w http.ResponseWriter, b []byte, v string, d scenarios.Decision) {
				status(`{"allowed":true,"denied":%t}`, d != scenarios.Allow)(w, b, v, d)
			},
		),
		named(
			"inverted-denied",
			"denies-what-is-not-granted",
			"what is not granted is denied, so that nobody behind is asked",
			func(w http.ResponseWriter, b []byte, v string, d scenarios.Decision) {
				status(`{"allowed":ALLOWED,"denied":%t}`, d != scenarios.Allow)(w, b, v, d)
			},
		),
		named(
			"always-v1",
			"wrong-api-version",
			"the answer has another apiVersion than the review",
			func(w http.ResponseWriter, _ []byte, _ string, d scenarios.Decision) {
				_, _ = w.Write(reference.Answer(reference.V1, d))
			},
		),
		named(
			"wrong-kind",
			"wrong-kind",
			"the answer is a SelfSubjectAccessReview",
			func(w http.ResponseWriter, _ []byte, v string, d scenarios.Decision) {
				_, _ = w.Write(bytes.Replace(reference.Answer(v, d), []byte("SubjectAccessReview"), []byte("SelfSubjectAccessReview"), 1))
			},
		),
		named(
			"no-status",
			"no-status",
			"an answer of no opinion has no status",
			func(w http.ResponseWriter, _ []byte, v string, d scenarios.Decision) {
				if d != scenarios.Allow {
					_, _ = fmt.Fprintf(w, `{"apiVersion":%q,"kind":"SubjectAccessReview"}`, v)
					return
				}
				_, _ = w.Write(reference.Answer(v, d))
			},
		),
		named(
			"allowed-as-text",
			"answer-unreadable",
			"allowed is a string",
			func(w http.ResponseWriter, b []byte, v string, d scenarios.Decision) {
				status(`{"allowed":"ALLOWED"}`)(w, b, v, d)
			},
		),
		named(
			"timestamp-empty",
			"answer-unreadable",
			"the creationTimestamp of the answer is an empty string, which is not a time",
			func(w http.ResponseWriter, _ []byte, v string, d scenarios.Decision) {
				_, _ = w.Write(
					bytes.Replace(reference.Answer(v, d), []byte(`"metadata":{}`), []byte(`"metadata":{"creationTimestamp":""}`), 1),
				)
			},
		),
		named(
			"content-type-cut",
			"answer-unreadable",
			"the Content-Type has a parameter without a value",
			func(w http.ResponseWriter, _ []byte, v string, d scenarios.Decision) {
				w.Header().Set("Content-Type", "application/json; charset")
				_, _ = w.Write(reference.Answer(v, d))
			},
		),
		named(
			"answer-cut",
			"closes-the-connection",
			"what is not allowed is answered with less than was announced",
			func(w http.ResponseWriter, _ []byte, v string, d scenarios.Decision) {
				answer := reference.Answer(v, d)
				if d != scenarios.Allow {
					w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
					answer = answer[:20]
				}
				_, _ = w.Write(answer)
			},
		),
		named(
			"trailing-text",
			"answer-unreadable",
			"a second object stands behind the review",
			func(w http.ResponseWriter, _ []byte, v string, d scenarios.Decision) {
				_, _ = w.Write(append(reference.Answer(v, d), `{"ok":true}`...))
			},
		),
	}
}

// refusalFaults are wrong in the answer to what is not allowed.
func refusalFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		named(
			"html-on-refusal",
			"answers-html",
			"what is not allowed is answered with a page",
			func(w http.ResponseWriter, _ []byte, v string, d scenarios.Decision) {
				if d != scenarios.Allow {
					w.Header().Set("Content-Type", "text/html")
					_, _ = io.WriteString(w, "<!DOCTYPE html><html><body>Access denied</body></html>")
					return
				}
				_, _ = w.Write(reference.Answer(v, d))
			},
		),
		named(
			"forbidden-on-refusal",
			"http-status",
			"what is not allowed is answered with 403",
			func(w http.ResponseWriter, _ []byte, v string, d scenarios.Decision) {
				if d != scenarios.Allow {
					w.WriteHeader(http.StatusForbidden)
				}
				_, _ = w.Write(reference.Answer(v, d))
			},
		),
		named(
			"redirects",
			"redirects",
			"what is not allowed is sent to a login page",
			func(w http.ResponseWriter, _ []byte, v string, d scenarios.Decision) {
				if d != scenarios.Allow {
					w.Header().Set("Location", "/login")
					w.WriteHeader(http.StatusFound)
					return
				}
				_, _ = w.Write(reference.Answer(v, d))
			},
		),
		named(
			"echoes-another-review",
			"echoes-another-review",
			"the answer holds the spec of somebody else",
			func(w http.ResponseWriter, _ []byte, v string, d scenarios.Decision) {
				_, _ = fmt.Fprintf(
					w,
					`{"apiVersion":%q,"kind":"SubjectAccessReview","spec":{"user":"somebody","uid":"else"},"status":{"allowed":%t}}`,
					v,
					d == scenarios.Allow,
				)
			},
		),
		named(
			"unasked-conditions",
			"conditions-not-asked-for",
			"conditions are sent to a client that did not ask for any (KEP-5681)",
			status(
				`{"allowed":ALLOWED,"conditionsChain":[{"conditionSet":{"conditions":[{"id":"owner","effect":"Allow","condition":"true"}]}}]}`,
			),
		),
		named(
			"allowed-with-error",
			"evaluation-error",
			"everything is answered with an evaluation error",
			status(`{"allowed":ALLOWED,"evaluationError":"the policy store is stale"}`),
		),
		named(
			"error-page-huge",
			"answer-too-large",
			"a refusal comes with megabytes of explanation",
			func(w http.ResponseWriter, b []byte, v string, d scenarios.Decision) {
				reason := ""
				if d != scenarios.Allow {
					reason = strings.Repeat("x", 2<<20)
				}
				status(`{"allowed":ALLOWED,"reason":%q}`, reason)(w, b, v, d)
			},
		),
	}
}

// clientFaults are wrong only where an API server asks, and right where anybody else does. They show that the harness
// cannot be told apart from an API server.
func clientFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		toServers(
			"denies-the-api-server",
			"denies-what-is-not-granted",
			"what is not granted is denied, but only to clients that send what API servers send",
			func(d scenarios.Decision) scenarios.Decision {
				if d == scenarios.NoOpinion {
					return scenarios.Deny
				}
				return d
			},
		),
		toServers(
			"allows-the-api-server",
			"ignores-user",
			"everything is allowed, but only to clients that send what API servers send",
			func(scenarios.Decision) scenarios.Decision { return scenarios.Allow },
		),
	}
}

// toServers makes a faulty authorizer that changes its decisions only for API servers.
func toServers(id, finding, description string, change func(scenarios.Decision) scenarios.Decision) faultyAuthorizer {
	return speaks(id, finding, description, func(right http.Handler, p *policy.Policy) http.Handler {
		wrong := reference.Handler(func(r review) scenarios.Decision { return change(p.Decide(r)) })
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			h := req.Header
			if req.URL.Query().Has("timeout") && h.Get("Accept") == "application/json, */*" &&
				strings.HasPrefix(h.Get("User-Agent"), "Go-http-client/") {
				wrong.ServeHTTP(w, req)
				return
			}
			right.ServeHTTP(w, req)
		})
	})
}
