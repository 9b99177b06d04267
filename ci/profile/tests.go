package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// action is one of the go command's steps (cmd/go/internal/work, actionJSON): compiling or linking a package, or running a test.
type action struct {
	Mode      string
	Package   string
	TimeStart time.Time
	TimeDone  time.Time
	CmdReal   time.Duration
	CmdUser   time.Duration
	CmdSys    time.Duration
}

// testTimes is what the test of a package took, in seconds: running it by the clock, and linking and running it of the
// processors.
type testTimes struct {
	name            string
	link, run, used float64
	starts          int // how many control planes were started
}

// testProfile is where the time of the tests went, in seconds.
type testProfile struct {
	compile, link float64 // of the processors
	tests         []*testTimes
	startSeconds  float64 // until the control planes were ready, by the clock
}

// startsFolder and timesFile are in a folder of `make profile-tests`. Beside them is what the go command wrote about each part
// of `make test`.
const startsFolder, timesFile = "starts", "times.txt"

// describeTests prints where the time of the tests went: compiling, linking and running them, and the packages that needed most.
func describeTests(folder string, out io.Writer) error {
	p, err := readTestProfile(folder)
	if err != nil {
		return err
	}
	run, starts := 0.0, 0
	for _, t := range p.tests {
		run += t.used
		starts += t.starts
	}
	rows := []row{{"compiling", p.compile}, {"linking", p.link}, {"running tests, with the API servers that they start", run}}
	if err := printTable(out, "processor time", rows, p.compile+p.link+run); err != nil {
		return err
	}
	_, err = fmt.Fprintf(
		out,
		"\n%d control planes were started, and ready after a mean of %.1f s.\n\n",
		starts,
		p.startSeconds/max(1, float64(starts)),
	)
	if err != nil {
		return err
	}
	return printPackages(out, p.tests, run)
}

const longestListed = 20

// printPackages prints the packages whose tests needed most processor time.
func printPackages(out io.Writer, tests []*testTimes, whole float64) error {
	slices.SortFunc(tests, func(a, b *testTimes) int { return cmp.Compare(b.used, a.used) })
	_, err := fmt.Fprintln(
		out,
		"| package | processor seconds | share | seconds by the clock | linked in | control planes |\n|---|--:|--:|--:|--:|--:|",
	)
	for _, t := range tests[:min(len(tests), longestListed)] {
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(
			out,
			"| %s | %.1f | %.0f %% | %.1f | %.1f | %d |\n",
			t.name,
			t.used,
			100*t.used/max(whole, 1e-9),
			t.run,
			t.link,
			t.starts,
		)
	}
	return err
}

// readTestProfile reads what `make profile-tests` has left in a folder.
func readTestProfile(folder string) (*testProfile, error) {
	parts, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%s: there is no file of go test -debug-actiongraph, expected one of each part of the tests", folder)
	}
	p, byName := &testProfile{}, map[string]*testTimes{}
	find := func(name string) *testTimes {
		if byName[name] == nil {
			byName[name] = &testTimes{name: name}
			p.tests = append(p.tests, byName[name])
		}
		return byName[name]
	}
	for _, part := range parts {
		list, err := readActions(part)
		if err != nil {
			return nil, err
		}
		p.addActions(list, find)
	}
	addUsage := func(fields []string) error { return addUsed(fields, find) }
	if err := eachLine(filepath.Join(folder, timesFile), 2, addUsage); err != nil {
		return nil, err
	}
	for _, t := range p.tests {
		addStart := func(fields []string) error { return p.addStart(t, fields) }
		if err := eachLine(filepath.Join(folder, startsFolder, t.name+".txt"), 1, addStart); err != nil {
			return nil, err
		}
	}
	p.tests = slices.DeleteFunc(p.tests, func(t *testTimes) bool { return t.run == 0 })
	return p, nil
}

func readActions(path string) (list []action, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("%s: %w (expected what go test -debug-actiongraph writes)", path, err)
	}
	return list, nil
}

// addActions adds the go command's steps. find returns the times of a package by its folder.
func (p *testProfile) addActions(list []action, find func(folder string) *testTimes) {
	for _, a := range list {
		seconds := (a.CmdUser + a.CmdSys).Seconds()
		folder := strings.TrimPrefix(strings.TrimSuffix(a.Package, ".test"), module)
		switch a.Mode {
		case "build":
			p.compile += seconds
		case "link":
			p.link += seconds
			find(folder).link += seconds
		case "test run":
			find(folder).run += a.TimeDone.Sub(a.TimeStart).Seconds()
		}
	}
}

// addUsed adds a line of timesFile.
func addUsed(fields []string, find func(folder string) *testTimes) error {
	seconds, err := strconv.ParseFloat(fields[1], 64)
	if err == nil {
		find(fields[0]).used += seconds
	}
	return err
}

// addStart adds a line of a package's file in startsFolder.
func (p *testProfile) addStart(t *testTimes, fields []string) error {
	seconds, err := strconv.ParseFloat(fields[0], 64)
	if err == nil {
		t.starts++
		p.startSeconds += seconds
	}
	return err
}

// eachLine reads a file of lines with so many words. A file that is not there has none.
func eachLine(path string, words int, add func(fields []string) error) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		fields := strings.Fields(lines.Text())
		if len(fields) != words {
			return fmt.Errorf("%s:%d: %q: expected %d words", path, number, lines.Text(), words)
		}
		if err := add(fields); err != nil {
			return fmt.Errorf("%s:%d: %q ends with no number of seconds", path, number, lines.Text())
		}
	}
	return lines.Err()
}
