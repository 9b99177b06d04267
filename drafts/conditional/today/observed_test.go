package today

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// reviewed reads how many reviews of the webhook an API server has counted by their results, and how many it has timed.
func (c *Cluster) reviewed(t *testing.T) map[string]uint64 {
	const counted, timed = "apiserver_authorization_webhook_evaluations_total", "apiserver_authorization_webhook_duration_seconds"
	families, err := c.Scrape(t.Context(), counted, timed)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" {
					out[map[string]string{counted: "counted ", timed: "timed "}[name]+l.GetValue()] += uint64(m.GetCounter().GetValue()) + m.GetHistogram().GetSampleCount()
				}
			}
		}
	}
	return out
}

// TestObserved checks what operators can see today. The KEP wants audit annotations and the latency and error rate of
// authorization, and names neither ("Monitoring Requirements"). Today there are metrics of the webhook's reviews, and
// an audit log. In this log only annotations show that a request was over-granted and then refused, instead of refused
// at once. No annotation tells this refusal from the refusal of any other admission webhook.
func TestObserved(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.jsonl")
	c := startForTest(t, StartOptions{Audit: log})
	s, err := reference.NewSnapshot([]vectors.Policy{{ID: "blue", Effect: vectors.Allow, Expression: `request.userInfo.username == "ann" && request.resource == "configmaps" && object.data.color == "blue"`}})
	if err != nil {
		t.Fatal(err)
	}
	c.Authorizer.Use(s)
	if err := c.register(t.Context(), "ValidatingWebhookConfiguration", admitPath, "CREATE"); err != nil {
		t.Fatal(err)
	}
	err = until(t.Context(), "the admission webhook is called", func(ctx context.Context) (bool, error) {
		_, err := c.createConfigMap(ctx, "ann", "probe", "red")
		return c.Judged.Load() > 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
	steps := []observedStep{
		{"admitted", "ann", "blue", "allow", http.StatusCreated},
		{"refused-later", "ann", "red", "allow", http.StatusForbidden},
		{"refused-at-once", "eve", "blue", "forbid", http.StatusForbidden},
	}
	t.Run("metrics", func(t *testing.T) { c.observeMetrics(t, steps) })
	t.Run("audit log", func(t *testing.T) { observeLog(t, log, steps) })
}

// observedStep is a ConfigMap that somebody creates, with what the audit log says of the decision, and the code of the
// answer.
type observedStep struct {
	name, user, color, decision string
	code                        int
}

// createConfigMap creates a ConfigMap as a user, and returns the code of the answer.
func (c *Cluster) createConfigMap(ctx context.Context, user, name, color string) (int, error) {
	object := map[string]any{"metadata": map[string]any{"name": name}, "data": map[string]any{"color": color}}
	r, err := c.Send(ctx, &User{Name: user}, http.MethodPost, "/api/v1/namespaces/default/configmaps", "", object)
	return r.Code, err
}

// observeMetrics checks that the metrics count and time each review, and count an error of the webhook.
func (c *Cluster) observeMetrics(t *testing.T, steps []observedStep) {
	t.Helper()
	for _, step := range steps {
		before := c.reviewed(t)
		if code, err := c.createConfigMap(t.Context(), step.user, step.name, step.color); err != nil || code != step.code {
			t.Errorf("%s: code %d, %v", step.name, code, err)
		}
		before["counted success"]++
		before["timed success"]++
		if after := c.reviewed(t); !maps.Equal(after, before) {
			t.Errorf("%s: the metrics are %v, want %v", step.name, after, before)
		}
	}
	before := c.reviewed(t)
	c.answer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", http.StatusBadRequest) }))
	if code, err := c.createConfigMap(t.Context(), "ann", "broken", "blue"); err != nil || code == http.StatusCreated {
		t.Errorf("the webhook is broken, and the code is %d, %v", code, err)
	}
	after := c.reviewed(t)
	for k, n := range after {
		isOneError := !strings.HasSuffix(k, "success") && n == before[k]+1
		if !isOneError && n != before[k] {
			t.Errorf("after an error %s is %d, and was %d", k, n, before[k])
		}
	}
	if maps.Equal(after, before) {
		t.Errorf("an error of the webhook is not counted: %v", after)
	}
}

// observeLog checks that the audit log has the decision of each step and its reason, and that it does not tell what
// admission refused from what it admitted.
func observeLog(t *testing.T, log string, steps []observedStep) {
	t.Helper()
	for _, step := range steps {
		got := audited(t, log, step.user, step.name)
		want := []string{"authorization.k8s.io/decision", "authorization.k8s.io/reason"}
		if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, want) || got[want[0]] != step.decision {
			t.Errorf("%s: the annotations are %v, want a decision that is %s, and its reason", step.name, got, step.decision)
		}
	}
	first, later := audited(t, log, "ann", "admitted"), audited(t, log, "ann", "refused-later")
	if !maps.Equal(first, later) {
		t.Errorf("the log tells what admission refused, %v, from what it admitted, %v", later, first)
	}
}

// audited are the annotations of a request. What is refused at once is not read, so that the log does not know its name.
func audited(t *testing.T, log, user, name string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var event struct {
			Stage, Verb string
			User        struct{ Username string }
			ObjectRef   struct{ Name string }
			Annotations map[string]string
		}
		if json.Unmarshal([]byte(line), &event) == nil && event.Stage == "ResponseComplete" && event.Verb == "create" &&
			event.User.Username == user &&
			(event.ObjectRef.Name == name || event.ObjectRef.Name == "") {
			return event.Annotations
		}
	}
	t.Errorf("the audit log has no request of %s about %s", user, name)
	return nil
}
