package predict

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/docs"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

var update = flag.Bool("update", false, "write the table of docs/results/predicted.md")

// publishedRun is what the published file of a storm says about it.
type publishedRun struct {
	Profile     string             `json:"profile"`
	BlockLength scenarios.Duration `json:"blockLength"`
	Authorizer  string             `json:"authorizer"`
	// Evidence names the published evidence. Runs that have it are of builds whose agents also ask who they are.
	Evidence   string              `json:"evidence"`
	Population publishedPopulation `json:"population"`
	Variants   []struct {
		Variant string         `json:"variant"`
		Server  profile.Server `json:"server"`
		Agents  int            `json:"agents"`
		Reviews struct {
			Of         string                     `json:"of"`
			PerRequest struct{ Estimate float64 } `json:"perRequest"`
		} `json:"reviews"`
	} `json:"variants"`
}

type publishedPopulation struct {
	ServiceAccounts int                `json:"serviceAccounts"`
	Every           scenarios.Duration `json:"every"`
}

// complete sets, from the profile and the name of a run, what its file does not say because it is older than these
// fields.
func (r *publishedRun) complete(t *testing.T, part, name string) {
	p, err := profile.Load(r.Profile, nil)
	if part == "daemonset" || r.Profile == "reviews-5000" {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.BlockLength == 0 {
		r.BlockLength = scenarios.Duration(p.Block)
	}
	if r.Population.Every == 0 && p.Arrivals.Kind != "waves" {
		r.Population.Every = scenarios.Duration(p.Arrivals.Every)
	}
	if r.Authorizer == "" {
		_, r.Authorizer, _ = strings.Cut(name, ", ")
	}
}

// readVariant returns what the agents of a published variant are, and what they may do. ok is false for those from
// which no plan can be made.
func readVariant(variant string) (mode oracle.Mode, rbac RBAC, ok bool) {
	known := map[string]struct {
		mode oracle.Mode
		rbac RBAC
	}{
		"associated-node": {oracle.AssociatedNode, ConstrainedRBAC}, "associated-node-cold": {oracle.AssociatedNode, ConstrainedRBAC},
		"arbitrary-node": {oracle.ArbitraryNode, ConstrainedRBAC}, "denied": {oracle.AssociatedNode, NoRBAC},
		"legacy-gate-off": {oracle.AssociatedNode, LegacyRBAC}, "legacy-gate-on": {oracle.AssociatedNode, LegacyRBAC},
		"legacy-node": {oracle.AssociatedNode, LegacyRBAC},
	}
	k, ok := known[variant]
	return k.mode, k.rbac, ok
}

// costOfBlock returns the reviews of a request, or its checks if there is no webhook, in a block that begins when all
// successes are forgotten.
func costOfBlock(t *testing.T, p *Plan, length time.Duration) float64 {
	t.Helper()
	script, err := newScript(p.Workloads[0], p.Situations()[0], p.Authorizer.Chain)
	if err != nil {
		t.Fatal(err)
	}
	var n numbers
	g := newGroup(0, p.Workloads[0], script, 1, &n)
	s := newSimulation(p, []*group{g}, n)
	if script.mode != "" {
		for account := range n.accounts {
			s.servers[0].modes.remember(account, 0, forever)
		}
	}
	tally := s.watch(0)
	s.run(length)
	sum := tally.sumBetween(0, int(length/time.Second))
	if p.Authorizer.hasWebhook() {
		return float64(sum.Reviews) / float64(sum.Requests)
	}
	return float64(sum.Checks) / float64(sum.Requests)
}

// withWhoami returns by how much reviews of a request change because one request in twenty is a SelfSubjectReview. Lists of the
// pods of different nodes are different actions, each of which is checked. A SelfSubjectReview is the same action for all
// agents with one account, and is checked once.
func withWhoami(agents int) float64 { return -1.0/20 + 1/float64(agents) }

// whoamiShare is the step of the requests that ask who the agent is: one in so many.
const whoamiShare = 20

// costOfMixedBlock returns the reviews of a request, or its checks if there is no webhook, in a block in which each agent
// asks in its own time, and one request in whoamiShare is a SelfSubjectReview. The requests are replayed as those of an
// audit log are.
func costOfMixedBlock(t *testing.T, p *Plan, length time.Duration) float64 {
	t.Helper()
	predicted, err := mixedBlock(p.Workloads[0], p.Situations()[0].RBAC, length).Predict(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	cost := predicted.Situations[0].Reviews
	if !p.Authorizer.hasWebhook() {
		cost = predicted.Situations[0].Checks
	}
	return float64(cost) / float64(predicted.Requests)
}

// mixedBlock returns the requests of a block. Which requests ask who the agent is, is drawn from a fixed seed.
func mixedBlock(w Workload, rbac RBAC, length time.Duration) *Replay {
	random, log := rand.New(rand.NewPCG(5284, 0)), &Replay{}
	whoami := oracle.ParseRequest(http.MethodPost, &url.URL{Path: "/apis/authentication.k8s.io/v1/selfsubjectreviews"})
	for node := range w.Nodes {
		name := fmt.Sprintf("node-%d", node)
		requestor := oracle.RequestorOf("agent", scenarios.Requestor{ServiceAccount: &scenarios.ServiceAccount{
			Namespace: "agents", Name: "agent", Pod: "agent-" + name, Node: name,
		}})
		_, as, _ := sampleRequest(w, rbac)
		as.User = "system:node:" + name
		list := oracle.ParseRequest(http.MethodGet, &url.URL{Path: "/api/v1/pods", RawQuery: "fieldSelector=spec.nodeName%3D" + name})
		every := time.Duration(w.Every)
		for at := every * time.Duration(node) / time.Duration(w.Nodes); at < length; at += every {
			request := list
			if random.IntN(whoamiShare) == 0 {
				request = whoami
			}
			log.Add(LoggedRequest{At: time.Unix(0, 0).Add(at), Client: name, Requestor: requestor, As: *as, Request: request})
		}
	}
	return log
}

// steadyCost returns the reviews of a request in the long run, or its checks if there is no webhook.
func steadyCost(t *testing.T, p *Plan) float64 {
	t.Helper()
	steady := sumOf(newClosedForm(p, []script{scriptOf(t, p)}).steady()).total()
	if p.Authorizer.hasWebhook() {
		return steady.reviews / steady.requests
	}
	return steady.checks / steady.requests
}

// TestBlockOfAnswers checks a block of 30 s that begins with nothing remembered. For three requests of each agent,
// which asks every 10 s, it has two reviews if all answers fit, and six if they do not.
func TestBlockOfAnswers(t *testing.T) {
	for size, want := range map[int]float64{1_000_000: 2.0 / 3, 8192: 2} {
		p := newPlan(t, func(p *Plan, w *Workload) {
			w.Nodes, w.Every, w.NameAlone, p.Authorizer.Size = 5000, scenarios.Duration(10*time.Second), true, size
			p.Gate, p.RBAC = scenarios.GateOff, LegacyRBAC
		})
		if got := costOfBlock(t, p, 30*time.Second); math.Abs(got-want) > 1e-9 {
			t.Errorf("%d answers: %v reviews of a request, want %v", size, got, want)
		}
	}
}

// row is a line of the table. It stands for runs in which the same was asked with the same result.
type row struct{ variant, asks, accounts, authorizer, predicted, measured, steady string }

// TestPublished checks that the published results of storms whose agents ask in their own time are within 2 % of what
// is predicted for their blocks. The table in the documentation is made from it, and also shows the long run.
func TestPublished(t *testing.T) {
	agents, runs := map[row][]int{}, map[row]int{}
	for _, part := range []string{"daemonset", "reviews", "authorizers"} {
		raw, err := os.ReadFile(filepath.Join("../../docs/results", part, "runs.json"))
		if err != nil {
			t.Fatal(err)
		}
		var all map[string]*publishedRun
		if err := json.Unmarshal(raw, &all); err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			r := all[name]
			if strings.HasSuffix(r.Profile, "-authorizer") {
				continue // of slow authorizers, which have the same counts as the others
			}
			r.complete(t, part, name)
			for i := range r.Variants {
				if at, ok := comparePublished(t, r, name, i); ok {
					runs[at]++
					if n := r.Variants[i].Agents; !slices.Contains(agents[at], n) {
						agents[at] = append(agents[at], n)
					}
				}
			}
		}
	}
	var table strings.Builder
	table.WriteString(
		"| what the agents do | agents | each asks every | accounts | authorizer | runs | predicted | measured | in the long run |\n|---|--:|--:|---|---|--:|--:|--:|--:|\n",
	)
	rows := slices.SortedFunc(maps.Keys(runs), func(a, b row) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, at := range rows {
		slices.Sort(agents[at])
		list := strings.ReplaceAll(strings.Trim(fmt.Sprint(agents[at]), "[]"), " ", ", ")
		fmt.Fprintf(
			&table,
			"| %s | %s | %s | %s | %s | %d | %s | %s | %s |\n",
			at.variant,
			list,
			at.asks,
			at.accounts,
			at.authorizer,
			runs[at],
			at.predicted,
			at.measured,
			at.steady,
		)
	}
	docs.ComparePart(t, "../../docs/results/predicted.md", "predicted and measured", table.String(), *update)
}

// comparePublished compares a variant of a run with the prediction.
func comparePublished(t *testing.T, r *publishedRun, name string, variant int) (row, bool) {
	t.Helper()
	v := r.Variants[variant]
	mode, rbac, ok := readVariant(v.Variant)
	if !ok {
		return row{}, false
	}
	length, every := time.Duration(r.BlockLength), time.Duration(r.Population.Every)
	asks := every.String()
	if length == 0 {
		length = 30 * time.Second // of reviews-5000
	}
	if every == 0 {
		every, asks = length, "block, once" // waves
	}
	accounts := profile.Shared
	if strings.HasSuffix(name, "ServiceAccounts") {
		accounts = profile.PerAgent
	}
	p := newPlan(t, func(p *Plan, w *Workload) {
		w.Mode, w.Nodes, w.Every, w.ServiceAccounts = mode, v.Agents, scenarios.Duration(every), accounts
		w.NameAlone = v.Variant != "legacy-node"
		p.Gate, p.RBAC = v.Server.Gate(), rbac
		p.Authorizer.Cache = strings.Contains(r.Authorizer, "webhook, remembered")
		if strings.HasPrefix(r.Authorizer, "rbac") {
			p.Authorizer.Chain = RBACAlone
		}
	})
	steady := steadyCost(t, p)
	got, want := costOfBlock(t, p, length), v.Reviews.PerRequest.Estimate
	asksOnce := r.Population.Every == 0
	asksWhoami := r.Evidence != "" && !strings.HasSuffix(r.Profile, "daemonset")
	sharesAction := accounts == profile.Shared && strings.HasPrefix(v.Variant, "associated-node")
	switch {
	case v.Reviews.Of == "steady state" && r.Evidence != "":
		got = steady
	case asksOnce && asksWhoami && sharesAction:
		got += withWhoami(v.Agents)
	case !asksOnce && asksWhoami:
		got = costOfMixedBlock(t, p, length)
	}
	if math.Abs(got-want) > 0.02*want {
		t.Errorf("%s, %s on %s: %.4f predicted, %.4f measured", name, v.Variant, v.Server, got, want)
	}
	authorizer := "webhook"
	switch {
	case !p.Authorizer.hasWebhook():
		authorizer = "RBAC"
	case p.Authorizer.Cache:
		authorizer = "webhook, remembered"
	}
	format := func(f float64) string { return fmt.Sprintf("%.3f", f) }
	inTheLongRun := format(steady)
	if asksOnce {
		inTheLongRun = ""
	}
	shared := map[profile.ServiceAccounts]string{profile.Shared: "shared", profile.PerAgent: "own"}[accounts]
	return row{strings.TrimSuffix(v.Variant, "-cold") + ", gate " + string(p.Gate), asks, shared, authorizer, format(got), format(want), inTheLongRun}, true
}

func scriptOf(t *testing.T, p *Plan) script {
	t.Helper()
	s, err := newScript(p.Workloads[0], p.Situations()[0], p.Authorizer.Chain)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
