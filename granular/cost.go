package granular

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/granular/enforcer"
)

// Cost is what checks cost by the number of fields that a request changes.
type Cost struct {
	Curves []CostCurve `json:"curves"`
	Floods []Flood     `json:"floods"`
}

// CostCurve is that of one actor.
type CostCurve struct {
	Actor string `json:"actor"`
	// Holds is what the actor is granted, in words.
	Holds  string      `json:"holds"`
	Points []CostPoint `json:"points"`
}

// CostPoint is one number of fields.
type CostPoint struct {
	Fields int `json:"fields"`
	// Checks are all questions to the authorizer for one request, the ordinary permission and granular among them.
	Checks  int  `json:"checks"`
	Allowed bool `json:"allowed"`
	// Milliseconds is the median of the times until the answer.
	Milliseconds float64 `json:"milliseconds"`
}

// Flood is an actor that sends requests with as many changes as it can without pause.
type Flood struct {
	Actor             string  `json:"actor"`
	Fields            int     `json:"fields"`
	Clients           int     `json:"clients"`
	Seconds           float64 `json:"seconds"`
	Requests          int64   `json:"requests"`
	Checks            int64   `json:"checks"`
	ChecksPerRequest  float64 `json:"checksPerRequest"`
	RequestsPerSecond float64 `json:"requestsPerSecond"`
	ChecksPerSecond   float64 `json:"checksPerSecond"`
}

// costFields are the numbers of labels that are changed at once.
var costFields = []int{1, 2, 4, 8, 16, 32, 64, 128, 256}

// CostOptions say how much is measured.
type CostOptions struct {
	// Repeats is how often each request is sent.
	Repeats int
	// Flood is how long each flood takes; none if it is 0.
	Flood time.Duration
}

// payer is an actor of the measurement: its grants for some number of labels.
type payer struct {
	name, holds string
	grants      func(n int) []string
	// samePrefix gives all labels one prefix.
	samePrefix bool
}

func payers() []payer {
	fixed := func(grants ...string) func(int) []string { return func(int) []string { return grants } }
	labels := func(n int) []string {
		out := []string{"granular"}
		for i := range n {
			out = append(out, fmt.Sprintf("granular:label(p%03d.io)", i))
		}
		return out
	}
	return []payer{
		{"ordinary", "patch", fixed("patch"), false},
		{"metadata", "granular, granular:objectMeta", fixed("granular", "granular:objectMeta"), false},
		{"labels", "granular, granular:labels", fixed("granular", "granular:labels"), false},
		{"one-prefix", "granular, and the one prefix that all labels have", labels, true},
		{"every-prefix", "granular, and the prefix of every label", labels, false},
		{"all-but-the-last", "granular, and the prefix of every label but the last", func(n int) []string { return labels(n - 1) }, false},
		{"flooding", "granular alone", fixed("granular"), false},
		{"nothing", "nothing", func(int) []string { return nil }, false},
	}
}

// patch changes n labels.
func (p payer) patch(n int) ([]byte, error) {
	labels := map[string]string{}
	for i := range n {
		prefix := i
		if p.samePrefix {
			prefix = 0
		}
		labels[fmt.Sprintf("p%03d.io/l%d", prefix, i)] = "x"
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
}

var configmaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// Measure counts the checks of the reference. Requests are dry runs, which cost the
// same checks and leave the object as it is.
func (b *Bench) Measure(ctx context.Context, o CostOptions) (*Cost, error) {
	g, err := b.open(ctx, enforcer.Reference())
	if err != nil {
		return nil, err
	}
	defer func() { _ = g.Close() }()
	out := &Cost{}
	for _, p := range payers() {
		curve := CostCurve{Actor: p.name, Holds: p.holds}
		for _, n := range costFields {
			point, err := b.point(ctx, g, p, n, o.Repeats)
			if err != nil {
				return nil, fmt.Errorf("%s with %d fields: %w", p.name, n, err)
			}
			curve.Points = append(curve.Points, *point)
		}
		out.Curves = append(out.Curves, curve)
		if o.Flood > 0 && slices.Contains([]string{"flooding", "nothing", "all-but-the-last"}, p.name) {
			flood, err := b.flood(ctx, g, p, costFields[len(costFields)-1], o.Flood)
			if err != nil {
				return nil, fmt.Errorf("flood of %s: %w", p.name, err)
			}
			out.Floods = append(out.Floods, *flood)
		}
	}
	return out, b.target.Err()
}

// sender provides an actor and the object that it patches, and returns what sends the patch of n labels.
func (b *Bench) sender(ctx context.Context, g *gate, p payer, n int) (a actor, send func() error, err error) {
	if a, err = b.actor(ctx, fmt.Sprintf("cost/%s/%d", p.name, n), configmaps, p.grants(n), nil); err != nil {
		return a, nil, err
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: subject}}
	_, err = b.client.CoreV1().ConfigMaps(a.namespace).Create(ctx, object, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return a, nil, err
	}
	client, err := kubernetes.NewForConfig(g.config(a.token))
	if err != nil {
		return a, nil, err
	}
	body, err := p.patch(n)
	return a, func() error {
		_, err := client.CoreV1().ConfigMaps(a.namespace).Patch(ctx, subject, types.MergePatchType, body, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}, err
}

func (b *Bench) point(ctx context.Context, g *gate, p payer, n, repeats int) (*CostPoint, error) {
	a, send, err := b.sender(ctx, g, p, n)
	if err != nil {
		return nil, err
	}
	out := &CostPoint{Fields: n, Checks: -1}
	var times []time.Duration
	for range max(1, repeats) {
		g.take(a.user)
		start := time.Now()
		err := send()
		times = append(times, time.Since(start))
		decisions := g.take(a.user)
		if len(decisions) != 1 {
			return nil, fmt.Errorf("the enforcer made %d decisions: %w", len(decisions), err)
		}
		checks := len(decisions[0].Checks)
		if out.Checks >= 0 && out.Checks != checks {
			return nil, fmt.Errorf("%d checks, and %d for the same request", out.Checks, checks)
		}
		out.Checks, out.Allowed = checks, err == nil
	}
	slices.Sort(times)
	out.Milliseconds = float64(times[len(times)/2].Microseconds()) / 1000
	return out, nil
}

// floodClients is how many requests of a flood are under way at once.
const floodClients = 4

func (b *Bench) flood(ctx context.Context, g *gate, p payer, n int, d time.Duration) (*Flood, error) {
	a, send, err := b.sender(ctx, g, p, n)
	if err != nil {
		return nil, err
	}
	g.take(a.user)
	var wg sync.WaitGroup
	var requests atomic.Int64
	start := time.Now()
	for range floodClients {
		wg.Go(func() {
			for time.Since(start) < d && ctx.Err() == nil {
				_ = send() // what is refused costs checks, too
				requests.Add(1)
			}
		})
	}
	wg.Wait()
	out := &Flood{Actor: p.name, Fields: n, Clients: floodClients, Seconds: time.Since(start).Seconds(), Requests: requests.Load()}
	for _, decision := range g.take(a.user) {
		out.Checks += int64(len(decision.Checks))
	}
	out.ChecksPerRequest = float64(out.Checks) / float64(max(1, out.Requests))
	out.RequestsPerSecond, out.ChecksPerSecond = float64(out.Requests)/out.Seconds, float64(out.Checks)/out.Seconds
	return out, ctx.Err()
}
