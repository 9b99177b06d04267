package mutants

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
)

// costRounds is how often both programs are run. The interval of the median of so many differences is from the sixth
// smallest to the sixth largest (95.9 %, by the binomial distribution).
const costRounds, costRank = 20, 5

// BenchmarkFixes measures what each fix of impersonation takes of a request, in nanoseconds of processor time, without HTTP,
// authorizers and network: the package as it is and with the fix, in turns. It says the median of the differences.
func BenchmarkFixes(b *testing.B) {
	binaries := &local.Binaries{}
	asItIs := costProgram(b, binaries, nil)
	for _, p := range loadPatches(b) {
		b.Run(p.Finding, func(b *testing.B) {
			mended := costProgram(b, binaries, &p)
			before, differences := map[string][]float64{}, map[string][]float64{}
			for range costRounds {
				was, is := cost(b, asItIs), cost(b, mended)
				for name, ns := range was {
					before[name] = append(before[name], ns)
					differences[name] = append(differences[name], is[name]-ns)
				}
			}
			for _, name := range slices.Sorted(maps.Keys(before)) {
				slices.Sort(before[name])
				d := differences[name]
				slices.Sort(d)
				middle := costRounds / 2
				b.Logf(
					"%s: %.0f ns, with the fix %+.0f ns [%+.0f, %+.0f]",
					name,
					before[name][middle],
					d[middle],
					d[costRank],
					d[costRounds-1-costRank],
				)
				b.ReportMetric(d[middle], name+"-cpu-ns/op")
			}
		})
	}
}

// costProgram compiles the benchmark of cost.txt with a copy of the package as a patch leaves it, or as it is, in a module
// with the pins of the newest release.
func costProgram(b *testing.B, binaries *local.Binaries, p *patch) string {
	b.Helper()
	pinned, err := binaries.PinnedModule(b.Context(), local.Newest())
	if err != nil {
		b.Fatal(err)
	}
	folder, err := binaries.GoOutput(b.Context(), pinned, "list", "-f", "{{.Dir}}", "k8s.io/apiserver/pkg/endpoints/filters/impersonation")
	if err != nil {
		b.Fatal(err)
	}
	work := b.TempDir()
	copied := moduleFiles{}
	for into, from := range map[string]string{
		"go.mod": filepath.Join(pinned, "go.mod"), "go.sum": filepath.Join(pinned, "go.sum"),
		"impersonation/zz_cost_test.go": filepath.Join(ownFolder, "cost.txt"),
	} {
		text, err := os.ReadFile(from)
		if err != nil {
			b.Fatal(err)
		}
		copied.put("cost", into, text)
	}
	sources, _ := filepath.Glob(filepath.Join(strings.TrimSpace(folder), "*.go"))
	for _, from := range sources {
		text, err := os.ReadFile(from)
		if err != nil {
			b.Fatal(err)
		}
		if !strings.HasSuffix(from, "_test.go") {
			copied.put("cost", "impersonation/"+filepath.Base(from), text)
		}
	}
	if err := copied.write("cost", work); err != nil {
		b.Fatal(err)
	}
	if p != nil {
		if err := p.apply(b.Context(), work, len(strings.Split(stagingFolder+"/pkg/endpoints/filters", "/"))); err != nil {
			b.Fatal(err)
		}
	}
	program := filepath.Join(work, "cost")
	if _, err := binaries.GoOutput(b.Context(), work, "test", "-c", "-trimpath", "-o", program, "./impersonation"); err != nil {
		b.Fatal(err)
	}
	return program
}

var costLine = regexp.MustCompile(`(?m)^BenchmarkCost/(\S+?)(?:-\d+)?\s.*?([0-9.]+) cpu-ns/op`)

// cost runs a program, and returns the nanoseconds of each of its cases.
func cost(b *testing.B, program string) map[string]float64 {
	b.Helper()
	out, err := exec.CommandContext(b.Context(), program, "-test.run", "^$", "-test.bench", "Cost", "-test.benchtime", "5000x", "-test.cpu", "1").
		CombinedOutput()
	if err != nil {
		b.Fatal(fmt.Errorf("%w: %s", err, out))
	}
	ns := map[string]float64{}
	for _, found := range costLine.FindAllStringSubmatch(string(out), -1) {
		if ns[found[1]], err = strconv.ParseFloat(found[2], 64); err != nil {
			b.Fatal(err)
		}
	}
	if len(ns) == 0 {
		b.Fatalf("no results: %s", out)
	}
	return ns
}
