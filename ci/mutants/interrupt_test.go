package mutants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// TestInterrupted ends a campaign while it measures, and while it runs mutants,
// and wants no process and no file left behind. The program is the released
// kube-apiserver, which has no mutants in it and takes no notice of being told
// to be one.
func TestInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	temporary, state := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv(local.StateVariable, state)
	c := realCampaign(t)
	stop := errors.New("interrupted")
	phases := map[string]func(context.Context) error{
		"measuring": c.Measure,
		"running": func(ctx context.Context) error {
			base := &cellBaseline{target: c.Plan[0].Target, atStart: map[int]bool{1: true, 2: true}}
			for _, item := range c.Plan[0].Items {
				if item.Fate == conformance.Run {
					base.all = append(base.all, item.Scenario)
				}
			}
			c.baseline = []*cellBaseline{base}
			return c.Run(ctx, c.Sources.Mutants, func(Result) {})
		},
	}
	for name, phase := range phases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ended := make(chan error, 1)
			go func() { ended <- phase(ctx) }()
			waitFor(t, func() bool { return len(children(t)) >= 2 })
			time.Sleep(time.Second) // so that not all is caught in the same moment
			cancel(stop)
			select {
			case err := <-ended:
				if !errors.Is(err, stop) {
					t.Errorf("ended with %v, want %v", err, stop)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("it goes on")
			}
			if left := children(t); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
			for _, dir := range []string{temporary, state} {
				if left := leftIn(t, dir); len(left) > 0 {
					t.Errorf("left in %s: %v", dir, left)
				}
			}
		})
	}
}

// realCampaign is one against the released kube-apiserver, with a few scenarios.
func realCampaign(t *testing.T) *Campaign {
	t.Helper()
	binaries := &local.Binaries{}
	releases := local.Releases()
	release := releases[len(releases)-1]
	path, err := binaries.KubeAPIServer(t.Context(), release)
	if err != nil {
		t.Fatal(err)
	}
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	cells, err := matrix.Matrix{
		Provider:   "local",
		Kubernetes: []string{release.Minor},
		Gates:      matrix.Gates{scenarios.GateOn},
		Binaries:   binaries,
	}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := conformance.PlanCells(set, cells, conformance.Selection{Focus: regexp.MustCompile("^kep-5284/requests/")})
	if err != nil {
		t.Fatal(err)
	}
	mutants := []Mutant{{Number: 1, Key: "a", File: "cache.go"}, {Number: 2, Key: "b", File: "cache.go"}}
	return &Campaign{
		Sources: &Sources{Mutants: mutants}, Program: path, Plan: plan[:1], Workers: 2,
		Progress: func(line string) { t.Log(line) },
	}
}

// children are the processes that this one started, as /proc has them.
func children(t *testing.T) (found []string) {
	t.Helper()
	stats, err := os.ReadDir("/proc")
	if err != nil {
		t.Skip("there is no /proc here")
	}
	for _, entry := range stats {
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state parent
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == fmt.Sprint(os.Getpid()) {
			name, _, _ := strings.Cut(string(stat), ") ")
			found = append(found, name+")")
		}
	}
	return found
}

func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for begin := time.Now(); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("it did not come to it within a minute")
		}
	}
}

// leftIn are the entries of a folder, except for what is meant to stay: locks.
func leftIn(t *testing.T, dir string) (left []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "lock" {
			left = append(left, e.Name())
		}
	}
	return left
}
