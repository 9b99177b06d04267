package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/loadgen/profile"
	loadrun "github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/storm"
	"github.com/authzconf/authzconf/reports/load"
)

// savedRun writes a run of 20 blocks whose latencies are about so long, and
// returns its folder.
func savedRun(t *testing.T, latency time.Duration) string {
	t.Helper()
	r := loadrun.Run{
		APIVersion: loadrun.APIVersion, Kind: loadrun.Kind, Profile: "steady", Problems: []loadrun.Problem{},
		Servers: []loadrun.Server{{Name: "gate-on", GitVersion: "v1.37.1", Gate: "on"}},
	}
	for i := range 20 {
		b := loadrun.Block{
			Pair: i, Start: i / 4, ServerStarted: time.Unix(int64(i/4), 0), Role: "A", Variant: "warm", Server: "gate-on", Agents: 10, Length: loadrun.Duration(time.Second),
			Planned: 400, Sent: 400, Answers: map[string]int64{"200": 400},
			Timeline: []loadrun.Second{{Sent: 400, Done: 400, Reviews: 400}},
			Reviews:  []loadrun.ReviewCount{{ReviewKind: loadrun.ReviewKind{Mode: "request", Verb: "list", Decision: "Allow"}, Count: 400}},
			// The oracle's, so that there is something to judge in each run.
			Predicted: &loadrun.Prediction{Requests: 400, Checks: []loadrun.CheckRange{{ReviewKind: loadrun.ReviewKind{Mode: "request", Verb: "list", Decision: "Allow"}, Low: 400, High: 400}}},
		}
		for k := range 400 {
			// Some blocks are 1 % slower than others.
			b.Latency.Record(latency + time.Duration(k)*time.Microsecond + latency*time.Duration(i*7%5)/400)
		}
		r.Blocks = append(r.Blocks, b)
	}
	dir := filepath.Join(t.TempDir(), "out")
	if err := load.Write(dir, r, load.Judge(r, load.Thresholds{})); err != nil {
		t.Fatal(err)
	}
	return dir
}

func runLoadCommand(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	root := &cobra.Command{Use: "authzconf", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(newLoadVerify(), newLoadExport())
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	code = exitCode(root.Execute(), &errs)
	return code, out.String(), errs.String()
}

// profiled makes a saved run one of a profile, which was ended after its first block.
func profiled(t *testing.T, dir string) (loadrun.Run, load.Thresholds) {
	t.Helper()
	r, err := load.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, text, err := profile.Load("denied-flood")
	if err != nil {
		t.Fatal(err)
	}
	r.Profile, r.ProfileYAML, r.Agents, r.Pairs, r.Starts = p.Name, string(text), p.Agents(), p.Pairs, p.Starts
	r.Command = []string{"authzconf", "load", "--profile", "denied-flood"}
	r.Shards, r.Started = 1, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r.Finished = r.Started.Add(time.Hour)
	r.Interrupted, r.Blocks = true, r.Blocks[:1]
	b := &r.Blocks[0]
	b.Agents, b.Length, b.ServerStarted, b.Started = r.Agents, loadrun.Duration(p.Block), r.Started, r.Started.Add(time.Minute)
	b.Predicted.Asked, b.Predicted.Often = r.Agents, int(b.Sent)
	for i, c := range p.Comparisons { // the one that the seed has first
		for role, side := range map[string]profile.Side{"A": c.A, "B": c.B} {
			b.Pair, b.Role, b.AA, b.Comparison, b.Variant, b.Server = i, role, c.AA(), c.Name, side.Variant, string(side.Server)
			r.Servers[0].Name, r.Servers[0].Gate = b.Server, map[bool]string{true: "on", false: "off"}[side.Server.Gate() == profile.GateOn]
			if _, _, err = declaredBy(&r); err == nil {
				return r, storm.Thresholds(p)
			}
		}
	}
	t.Fatal(err)
	return r, storm.Thresholds(p)
}

// TestLoadVerify expects each way to make a report look better to be found.
func TestLoadVerify(t *testing.T) {
	dir := savedRun(t, 10*time.Millisecond)
	r, thresholds := profiled(t, dir)
	write := func(r loadrun.Run, t load.Thresholds) error { return load.Write(dir, r, load.Judge(r, t)) }
	lowered := thresholds
	lowered.MinPairs = 1
	fewer, counted, unprofiled, older := r, r, r, r
	older.Servers = []loadrun.Server{{Name: r.Servers[0].Name, GitVersion: "v1.36.2", Gate: r.Servers[0].Gate}}
	fewer.Command = append(slices.Clone(r.Command), "--pairs", "3")
	counted.Blocks = slices.Clone(r.Blocks)
	counted.Blocks[0].Sent, counted.Blocks[0].Planned = 300, 300
	unprofiled.Command, unprofiled.ProfileYAML = nil, ""
	milder := r
	milder.ProfileYAML += "# and nothing that must hold\n"
	filed := milder
	filed.Command = []string{"authzconf", "load", "--profile", "mine/denied-flood.yaml"}
	for _, c := range []struct {
		name string
		make func() error
		code int
		says string
	}{
		{"honest", func() error { return write(r, thresholds) }, exitPassed, "the outcome is inconclusive"},
		{"thresholds that nobody declared", func() error { return write(r, lowered) }, exitFailed, "the thresholds of the report are not those"},
		{"fewer pairs than were asked for", func() error { return write(fewer, thresholds) }, exitFailed, "the run is another one: pairs: "},
		{"another text under the name of a built-in profile", func() error { return write(milder, thresholds) }, exitFailed, "the text of the built-in profile denied-flood is not that of this authzconf"},
		{"a file under the name of a built-in profile", func() error { return write(filed, thresholds) }, exitFailed, "the text of the built-in profile denied-flood is not that of this authzconf"},
		{"a server of another version", func() error { return write(older, thresholds) }, exitFailed, " is Kubernetes v1.36.2, and its command asks for 1.37"},
		{"no profile", func() error { return write(unprofiled, thresholds) }, exitFailed, "what the run was to keep cannot be told"},
		{"a better outcome", func() error {
			path := filepath.Join(dir, "report.json")
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, []byte(strings.Replace(string(data), `"outcome": "inconclusive"`, `"outcome": "passed"`, 1)), 0o600)
		}, exitFailed, `says "passed", its run "inconclusive"`},
	} {
		if err := errors.Join(write(r, thresholds), c.make()); err != nil {
			t.Fatal(err)
		}
		if code, stdout, stderr := runLoadCommand("verify", dir); code != c.code || !strings.Contains(stdout, c.says) {
			t.Errorf("%s: exit code %d\n%s\n%s", c.name, code, stdout, stderr)
		}
	}
	if err := write(counted, thresholds); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil || !strings.Contains(string(data), "requests sent, in all and by second: 300 and 400") {
		t.Errorf("a counter that was changed: %v", err)
	}
	if code, _, stderr := runLoadCommand("verify", t.TempDir()); code != exitUsage || !strings.Contains(stderr, "there is no load run") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}

func TestPrintable(t *testing.T) {
	if got := printable("a\x1b[2Jb\u009bc\nd ±é"); got != "a�[2Jb�c�d ±é" {
		t.Errorf("%q", got)
	}
}

func TestLoadExport(t *testing.T) {
	dir := savedRun(t, 10*time.Millisecond)
	var status int
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		w.WriteHeader(status)
	}))
	defer receiver.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		code   int
		says   string
	}{
		{[]string{dir, "--remote-write", receiver.URL, "--bearer-token-file", token}, 204, exitPassed, "sent: "},
		{[]string{dir, "--remote-write", receiver.URL}, 204, exitInvalid, "401 Unauthorized: who are you: give a token"},
		{[]string{dir, "--remote-write", receiver.URL, "--bearer-token-file", token}, 400, exitInvalid, "400 Bad Request"},
		{[]string{dir, "--remote-write", "http://127.0.0.1:1/"}, 0, exitInvalid, "cannot be reached"},
		{[]string{dir}, 0, exitUsage, "--remote-write is missing"},
		{[]string{dir, "--remote-write", "localhost:9090"}, 0, exitUsage, "expected such as"},
		{[]string{dir, "--remote-write", receiver.URL, "--bearer-token-file", token + "x"}, 0, exitUsage, "--bearer-token-file: "},
		{[]string{t.TempDir(), "--remote-write", receiver.URL}, 0, exitUsage, "there is no load run"},
	} {
		status = c.status
		code, stdout, stderr := runLoadCommand(append([]string{"export"}, c.args...)...)
		if code != c.code || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("%q: exit code %d, %s%s", c.args, code, stdout, stderr)
		}
	}
}

// The configuration of clusterloader2 starts load with flags that it has.
func TestClusterLoaderFlags(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "ci", "clusterloader2", "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`(?m)^ *- --([a-z-]+)=?`).FindAllSubmatch(text, -1)
	if len(flags) < 8 {
		t.Errorf("%d flags", len(flags))
	}
	for _, f := range flags {
		if newLoad().Flags().Lookup(string(f[1])) == nil {
			t.Errorf("load has no --%s", f[1])
		}
	}
}
