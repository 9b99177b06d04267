package granular

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/docs"
	"github.com/authzconf/authzconf/reports/statistics"
)

// costFields are the numbers of labels that are changed at once.
var costFields = []int{1, 2, 4, 8, 16, 32, 64, 128, 256}

var configmaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// payer is an actor whose checks are counted.
type payer struct {
	// name is the name of the payer in the table. holds describes its grants for n labels.
	name, holds string
	grants      func(n int) []string
	// samePrefix is set if all labels have the same prefix.
	samePrefix bool
	allowed    bool
	// checks returns the expected number of checks of one patch of n labels, including the checks for the ordinary
	// permission and for granular.
	checks func(n int) int
}

func payers() []payer {
	grants := func(grants ...string) func(int) []string { return func(int) []string { return grants } }
	always := func(n int) func(int) int { return func(int) int { return n } }
	each := func(n int) int { return n + 4 }
	labels := func(n int) []string {
		out := []string{"granular"}
		for i := range n {
			out = append(out, fmt.Sprintf("granular:label(p%03d.io)", i))
		}
		return out
	}
	return []payer{
		{"ordinary", "`patch`", grants("patch"), false, true, always(1)},
		{"metadata", "`granular:objectMeta`", grants("granular", "granular:objectMeta"), false, true, always(3)},
		{"labels", "`granular:labels`", grants("granular", "granular:labels"), false, true, always(4)},
		{"one-prefix", "the one prefix of all labels", labels, true, true, always(5)},
		{"every-prefix", "each of n prefixes", labels, false, true, each},
		{"all-but-the-last", "n−1 of n prefixes", func(n int) []string { return labels(n - 1) }, false, false, each},
		{"flooding", "`granular` alone", grants("granular"), false, false, always(5)},
		{"nothing", "", grants(), false, false, always(2)},
	}
}

// patch returns a patch that changes n labels.
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

// sender provides an actor and the object that it patches, and returns a function that sends the patch of n labels. The
// patch is a dry run, which causes the same checks and leaves the object unchanged.
func (p payer) sender(t testing.TB, b *Bench, g *gate, n int) (a actor, send func() error) {
	a, err := b.actor(t.Context(), fmt.Sprintf("cost/%s/%d", p.name, n), configmaps, p.grants(n), nil)
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: subject}}
	_, err = b.client.CoreV1().
		ConfigMaps(a.namespace).
		Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	body, err := p.patch(n)
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(g.config(a.token))
	return a, func() error {
		_, err := client.CoreV1().
			ConfigMaps(a.namespace).
			Patch(t.Context(), subject, types.MergePatchType, body, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
}

// costs counts the checks of the reference, and compares the tables and the curve of docs/granular.md and
// docs/granular-kep.md with them.
func costs(t *testing.T, b *Bench) {
	g, err := b.open(t.Context(), by(t, Reference))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	var table strings.Builder
	table.WriteString(costHead(costFields))
	chart := statistics.Chart{
		Label:  "checks per request by fields that a request changes",
		Height: 360,
		Alone:  true,
		X:      statistics.Axis{Label: "fields that a request changes; of a claim, drivers", Log: true},
		Y:      statistics.Axis{Label: "checks per request", Log: true},
	}
	for _, p := range payers() {
		_, _ = fmt.Fprintf(&table, "| %s | %s |", p.name, p.holds)
		curve := statistics.Curve{Name: p.name}
		for _, n := range costFields {
			a, send := p.sender(t, b, g, n)
			g.take(a.user)
			err := send()
			decisions := g.take(a.user)
			if len(decisions) != 1 || (err == nil) != p.allowed {
				t.Fatalf("%s with %d fields: %d decisions, %v", p.name, n, len(decisions), err)
			}
			checks := len(decisions[0].Checks)
			if checks != p.checks(n) {
				t.Errorf("%s with %d fields: %d checks, want %d", p.name, n, checks, p.checks(n))
			}
			_, _ = fmt.Fprintf(&table, " %d |", checks)
			curve.Points = append(curve.Points, statistics.Point{X: float64(n), Y: float64(checks)})
		}
		_, _ = fmt.Fprintf(&table, " %s |\n", outcomeOf(p.allowed))
		chart.Curves = append(chart.Curves, curve)
	}
	docs.ComparePart(t, "../../docs/granular-kep.md", "checks by fields", table.String(), *update)
	docs.ComparePart(t, "../../docs/granular-kep.md", "claim", claim(chart.Curves), *update)
	claimTable, claimCurves := claimCosts(t, b)
	docs.ComparePart(t, "../../docs/granular.md", "reviews by drivers", claimTable, *update)
	chart.Curves = append(chart.Curves, claimCurves...)
	image, err := chart.SVG()
	if err == nil && *update {
		err = os.WriteFile("../../docs/granular-cost.svg", []byte(image+"\n"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// costHead returns the head of a table of costs by a number of fields.
func costHead(numbers []int) string {
	columns := strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", " | "), "[]")
	return fmt.Sprintf("| actor | holds |%s | |\n|---|---|%s---|\n", columns, strings.Repeat("--:|", len(numbers)))
}

// outcomeOf returns the word for an allowed or a denied request in a table of costs.
func outcomeOf(isAllowed bool) string {
	return map[bool]string{true: "allowed", false: "denied"}[isAllowed]
}

// claim compares what the KEP says about the number of checks ("worst-case-plausibly 3-4x") with the curves. The
// ordinary permission alone needs one check.
func claim(curves []statistics.Curve) string {
	var within, fixed, growing []string
	for _, c := range curves {
		first, last := c.Points[0], c.Points[len(c.Points)-1]
		text := fmt.Sprintf("%s (%.0f×)", c.Name, last.Y)
		switch {
		case last.Y > first.Y:
			growing = append(growing, text)
		case last.Y > 4:
			fixed = append(fixed, text)
		default:
			within = append(within, text)
		}
	}
	return fmt.Sprintf(
		"- within it, however many fields change: %s;\n- beyond it, but not growing: %s;\n- growing with the fields, with %.0f of them: %s.\n",
		strings.Join(within, ", "),
		strings.Join(fixed, ", "),
		curves[0].Points[len(curves[0].Points)-1].X,
		strings.Join(growing, ", "),
	)
}

// BenchmarkFlood measures how many checks the authorizer must answer if actors send requests of 256 labels without
// pause.
func BenchmarkFlood(b *testing.B) {
	on := bench(b)
	g, err := on.open(b.Context(), by(b, Reference))
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	for _, p := range payers() {
		if !slices.Contains([]string{"flooding", "nothing", "all-but-the-last"}, p.name) {
			continue
		}
		b.Run(p.name, func(b *testing.B) {
			a, send := p.sender(b, on, g, 256)
			g.take(a.user)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_ = send() // refused requests cost checks, too
				}
			})
			checks := 0
			for _, decision := range g.take(a.user) {
				checks += len(decision.Checks)
			}
			b.ReportMetric(float64(checks)/float64(b.N), "checks/op")
			b.ReportMetric(float64(checks)/b.Elapsed().Seconds(), "checks/s")
		})
	}
}
