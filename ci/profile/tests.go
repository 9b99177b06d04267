package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
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

// testTimes is what the test of a package took by the clock, in seconds, and what linking it took of the processors.
type testTimes struct {
	name      string
	link, run float64
}

// describeTests prints where the time of the tests went: compiling, linking, the start of control planes and the tests themselves,
// and the packages that took longest.
func describeTests(actions, starts string, out io.Writer) error {
	list, err := readActions(actions)
	if err != nil {
		return err
	}
	count, startSeconds, err := readStarts(starts)
	if err != nil {
		return err
	}
	compile, link, tests := sumActions(list)
	run := 0.0
	for _, t := range tests {
		run += t.run
	}
	rows := []row{
		{"compiling (processor time)", compile}, {"linking (processor time)", link},
		{fmt.Sprintf("running tests (by the clock), of this %.1f s until %d control planes were ready", startSeconds, count), run},
	}
	if err := printTable(out, "step", rows, compile+link+run); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	slices.SortFunc(tests, func(a, b testTimes) int { return cmp.Compare(b.run, a.run) })
	var longest []row
	for _, t := range tests[:min(len(tests), longestListed)] {
		longest = append(longest, row{fmt.Sprintf("%s (linked in %.1f s)", t.name, t.link), t.run})
	}
	return printTable(out, "package", longest, run)
}

const longestListed = 25

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

// sumActions returns the processor time of compiling and linking, and the times of each test.
func sumActions(list []action) (compile, link float64, tests []testTimes) {
	byName := map[string]*testTimes{}
	find := func(name string) *testTimes {
		name = strings.TrimPrefix(strings.TrimSuffix(name, ".test"), module)
		if byName[name] == nil {
			byName[name] = &testTimes{name: name}
		}
		return byName[name]
	}
	for _, a := range list {
		used := (a.CmdUser + a.CmdSys).Seconds()
		switch a.Mode {
		case "build":
			compile += used
		case "link":
			link += used
			find(a.Package).link += used
		case "test run":
			find(a.Package).run += a.TimeDone.Sub(a.TimeStart).Seconds()
		}
	}
	for _, t := range byName {
		if t.run > 0 {
			tests = append(tests, *t)
		}
	}
	return compile, link, tests
}

// readStarts returns how many control planes were started, and how many seconds that took; none without a file.
func readStarts(path string) (count int, seconds float64, err error) {
	if path == "" {
		return 0, 0, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		took, err := strconv.ParseFloat(lines.Text(), 64)
		if err != nil {
			return 0, 0, fmt.Errorf("%s:%d: %q is not a number of seconds", path, count+1, lines.Text())
		}
		count, seconds = count+1, seconds+took
	}
	return count, seconds, lines.Err()
}
