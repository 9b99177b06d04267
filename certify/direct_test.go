package certify

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
)

// TestRunEndsEarly checks how many answers are kept of an authorizer that no further question is worth. A question may
// be under way when the answer before it ends the run, but not after a fault, because the next one would take as long.
func TestRunEndsEarly(t *testing.T) {
	b := plan(t, 1)
	first := len(b.firstQuestions())
	for _, c := range []struct {
		name          string
		handler       http.HandlerFunc
		answers       int
		mostQuestions int64
	}{
		{
			name:          "no answer to anything",
			handler:       func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			answers:       1 + maxFaults, // one is of the first questions
			mostQuestions: 1 + maxFaults,
		},
		{
			name: "no status in any answer",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview"}`)
			},
			answers:       first + maxUseless,
			mostQuestions: int64(first + maxUseless + maxUnread + 1),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var questions atomic.Int64
			var last atomic.Value // the last body, because on a busy machine a question may be sent once more
			last.Store("")
			webhook := startWebhook(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if last.Swap(string(body)) != string(body) {
					questions.Add(1)
				}
				c.handler(w, r)
			}))
			run := certifyAll(t, b, webhook, Core)
			if len(run.Answers) != c.answers {
				t.Errorf("%d answers are kept, want %d", len(run.Answers), c.answers)
			}
			if n := questions.Load(); n > c.mostQuestions {
				t.Errorf("%d questions were asked, want at most %d", n, c.mostQuestions)
			}
			if len(run.Levels) != 0 {
				t.Errorf("levels %v are granted", run.Levels)
			}
		})
	}
}
