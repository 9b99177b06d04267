package today

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// maxBody is the largest body that an API server reads.
const maxBody = 3 << 20

// blueOnly lets only ann create ConfigMaps, on a condition.
func (c *Cluster) blueOnly(t testing.TB) {
	s, err := reference.NewSnapshot([]vectors.Policy{{
		ID: "blue", Effect: vectors.Allow,
		Expression: `request.userInfo.username == "ann" && request.resource == "configmaps" && request.verb == "create" && object.data.color == "blue"`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.Authorizer.Use(s)
}

// judgeCreates has the API server call the validating webhook for creates, and waits until it does.
func (c *Cluster) judgeCreates(t testing.TB) {
	if err := c.register(t.Context(), "ValidatingWebhookConfiguration", admitPath, "CREATE"); err != nil {
		t.Fatal(err)
	}
	probe := &User{Name: "probe", Groups: []string{"system:masters"}} // whom no authorizer sees
	err := until(t.Context(), "the admission webhook is called", func(ctx context.Context) (bool, error) {
		before := c.Judged.Load()
		_, err := c.Send(ctx, probe, http.MethodPost, configMaps, "", configMap("probe"))
		return c.Judged.Load() > before, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// coloredMap is a ConfigMap as JSON, padded so that its data has about a size in bytes.
func coloredMap(t testing.TB, color string, size int) string {
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"generateName": "body-"},
		"data": map[string]any{"color": color, "padding": strings.Repeat("x", size)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestBodiesOfTheUnauthorized checks when bodies are decoded. A user who cannot be authorized gets the answer 403 for
// every body, and nothing of the body is decoded. For a user who may be authorized the body is decoded first (section
// "Why not just give authorizers access to request and stored objects?": decoding it earlier would be wasteful, and a
// way to exhaust the API server).
func TestBodiesOfTheUnauthorized(t *testing.T) {
	c := startForTest(t, StartOptions{})
	c.blueOnly(t)
	c.judgeCreates(t)
	for _, body := range []struct {
		name, text string
		code       int // for a user who may be authorized
		judged     int64
	}{
		{"as the condition wants it", coloredMap(t, "blue", 0), http.StatusCreated, 1},
		{"as the condition does not want it", coloredMap(t, "red", 0), http.StatusForbidden, 1},
		{"not JSON", `{"kind":`, http.StatusBadRequest, 0},
		{"of another kind", `{"apiVersion":"v1","kind":"Pod"}`, http.StatusBadRequest, 0},
		{"as large as bodies may be, and larger than objects may be", coloredMap(t, "blue", maxBody-1024), http.StatusUnprocessableEntity, 0},
		{"larger than bodies may be", coloredMap(t, "blue", maxBody), http.StatusRequestEntityTooLarge, 0},
	} {
		for user, want := range map[string]struct {
			code   int
			judged int64
		}{"ann": {body.code, body.judged}, "eve": {http.StatusForbidden, 0}} {
			t.Run(body.name+", by "+user, func(t *testing.T) {
				before := c.Judged.Load()
				r, err := c.sendRaw(t.Context(), &User{Name: user}, http.MethodPost, configMaps, "", strings.NewReader(body.text))
				if judged := c.Judged.Load() - before; err != nil || r.Code != want.code || judged != want.judged {
					t.Errorf("code %d (%.200s), %v, judged %d times; want %d, %d", r.Code, r.Status(), err, judged, want.code, want.judged)
				}
				if refused := strings.Contains(r.Status(), `User "eve" cannot create resource "configmaps"`); refused != (user == "eve") {
					t.Errorf("the message is %.200s", r.Status())
				}
			})
		}
	}
}

// endless is a body without end. It counts the bytes that are sent.
type endless struct{ sent atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	const limit = 64 << 20 // without a limit, a server that reads on would never end
	if e.sent.Load() >= limit {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = ' '
	}
	e.sent.Add(int64(len(p)))
	return len(p), nil
}

// TestBodiesAreNotRead sends a body without end. The API server reads as much as a body may have. From a user who
// cannot be authorized it reads less: only what the connection buffers.
func TestBodiesAreNotRead(t *testing.T) {
	c := startForTest(t, StartOptions{})
	c.blueOnly(t)
	sent := map[string]int64{}
	for user, code := range map[string]int{"ann": http.StatusRequestEntityTooLarge, "eve": http.StatusForbidden} {
		body := &endless{}
		r, err := c.sendRaw(t.Context(), &User{Name: user}, http.MethodPost, configMaps, "", body)
		if err != nil || r.Code != code {
			t.Errorf("%s: code %d (%s), %v; want %d", user, r.Code, r.Status(), err, code)
		}
		sent[user] = body.sent.Load()
	}
	t.Logf("bytes sent before the answer: %v", sent)
	if sent["ann"] < maxBody || sent["eve"] >= maxBody {
		t.Errorf(
			"before the answer %d bytes are sent of who may become authorized and %d of who cannot; bodies may have %d",
			sent["ann"],
			sent["eve"],
			maxBody,
		)
	}
}

// cpuSeconds returns the processor time that the API server has used.
func (c *Cluster) cpuSeconds(b *testing.B) float64 {
	const name = "process_cpu_seconds_total"
	families, err := c.Scrape(b.Context(), name)
	if err != nil {
		b.Fatal(err)
	}
	all := families[name].GetMetric()
	if len(all) != 1 {
		b.Fatalf("%d metrics are called %s", len(all), name)
	}
	return all[0].GetCounter().GetValue()
}

// BenchmarkCostOfObjects measures creates of ConfigMaps of several sizes: refused by the authorizer, over-granted and
// refused in admission, over-granted and admitted, and not judged at all. It measures the time until the answer, and
// the processor time of the API server, with a resolution of 10 ms. The order is random.
func BenchmarkCostOfObjects(b *testing.B) {
	c := startForTest(b, StartOptions{Cached: true})
	c.blueOnly(b)
	c.judgeCreates(b)
	type measured struct {
		name, body string
		u          *User
		code       int
	}
	var all []measured
	for _, size := range []int{1 << 10, 10 << 10, 100 << 10, 900 << 10} {
		at := fmt.Sprintf("bytes=%d/", size)
		all = append(all,
			measured{at + "by=refused-at-once", coloredMap(b, "blue", size), &User{Name: "eve"}, http.StatusForbidden},
			measured{at + "by=refused-in-admission", coloredMap(b, "red", size), &User{Name: "ann"}, http.StatusForbidden},
			measured{at + "by=admitted", coloredMap(b, "blue", size), &User{Name: "ann"}, http.StatusCreated},
			measured{at + "by=not-judged", coloredMap(b, "blue", size), plainUser, http.StatusCreated})
	}
	for _, i := range rand.Perm(len(all)) {
		b.Run(all[i].name, func(b *testing.B) {
			before := c.cpuSeconds(b)
			for b.Loop() {
				r, err := c.sendRaw(b.Context(), all[i].u, http.MethodPost, configMaps, "", strings.NewReader(all[i].body))
				if err != nil || r.Code != all[i].code {
					b.Fatalf("code %d (%s), %v; want %d", r.Code, r.Status(), err, all[i].code)
				}
			}
			b.ReportMetric((c.cpuSeconds(b)-before)/float64(b.N)*1e6, "server-µs/op")
		})
	}
}
