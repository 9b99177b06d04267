package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/reports"
)

const module = "github.com/authzconf/authzconf/"

// describeConformance prints where the processors' time of a run went: to which program, and in authzconf to which part.
func describeConformance(folder, cpuProfile string, out io.Writer) error {
	saved, err := conformance.ReadSaved(folder)
	if err != nil {
		return err
	}
	parts, err := readParts(cpuProfile)
	if err != nil {
		return err
	}
	m, err := conformance.ReadMachine(saved.View)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(folder, reports.ReportFile), err)
	}
	whole := m.Seconds * float64(m.Processors)
	var rows []row
	idle := whole
	for _, name := range slices.Sorted(maps.Keys(m.ProcessorSeconds)) {
		seconds := m.ProcessorSeconds[name]
		idle -= seconds
		rows = append(rows, row{name, seconds})
		if name == conformance.OwnName {
			rows = append(rows, scaleParts(parts, seconds)...)
		}
	}
	rows = append(rows, row{"waiting, or other work of the machine", max(0, idle)})
	summary := fmt.Sprintf("%.1f s by the clock on %d processors: %.1f s of processor time.\n\n", m.Seconds, m.Processors, whole)
	if _, err := io.WriteString(out, summary); err != nil {
		return err
	}
	return printTable(out, "processor time", rows, whole)
}

// scaleParts returns the parts of authzconf's processor time, the largest first. A profile only counts samples, so its
// shares are applied to the whole time, which is known exactly.
func scaleParts(parts map[string]float64, seconds float64) (rows []row) {
	sum := 0.0
	for _, value := range parts {
		sum += value
	}
	for name, value := range parts {
		rows = append(rows, row{"&nbsp;&nbsp;" + name, seconds * value / max(sum, 1e-9)})
	}
	slices.SortFunc(rows, func(a, b row) int {
		if a.seconds > b.seconds {
			return -1
		}
		return 1
	})
	return rows
}

// readParts sums the samples of a CPU profile by the part of authzconf that they belong to.
func readParts(path string) (map[string]float64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	p, err := profile.Parse(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w (expected a CPU profile of Go)", path, err)
	}
	parts := map[string]float64{}
	for _, s := range p.Sample {
		parts[findPart(functionsOf(s))] += float64(s.Value[len(s.Value)-1])
	}
	return parts, nil
}

// functionsOf returns the names of the functions of a sample, the innermost first.
func functionsOf(s *profile.Sample) (names []string) {
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	return names
}

// ownParts are the parts of authzconf by the package of ours that a sample is in, and libraryParts, where it is in none, by a
// function of a library. The first that fits counts.
var (
	ownParts = []struct{ begins, part string }{
		{"engine/recorder", "recorder"},
		{"verdicts", "judge"},
		{"oracle", "judge"},
		{"scenarios", "loading and deriving scenarios"},
		{"reports", "report and record"},
		{"engine", "provisioning, sending, observing"},
		{"clusters", "control planes"},
	}
	libraryParts = []struct{ begins, part string }{
		{"runtime.gcBgMarkWorker", "garbage collection"},
		{"net/http.(*conn).serve", "recorder"},
		{"net/http.(*persistConn)", "provisioning, sending, observing"},
		{"golang.org/x/net/http2", "provisioning, sending, observing"},
	}
)

// findPart returns the part of authzconf that the functions of a sample belong to, the innermost given first.
func findPart(functions []string) string {
	for _, name := range functions {
		path, isOurs := strings.CutPrefix(name, module)
		for _, p := range ownParts {
			if isOurs && strings.HasPrefix(path, p.begins) {
				return p.part
			}
		}
	}
	for _, name := range functions {
		for _, p := range libraryParts {
			if strings.HasPrefix(name, p.begins) {
				return p.part
			}
		}
	}
	return "everything else"
}
