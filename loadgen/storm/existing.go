package storm

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
)

// checkExisting says what cannot be in a cluster that somebody else made.
func (o *Options) checkExisting() string {
	p, cell := o.Profile, o.Existing.Cell
	switch servers := p.Servers(); {
	case p.Authorizer.Kind != profile.RBAC:
		return fmt.Sprintf("--authorizer %s: nothing is put into the authorizer chain of a cluster that exists: expected %s", p.Authorizer.Kind, profile.RBAC)
	case len(servers) > 1:
		return fmt.Sprintf("the profile %s compares the servers %v, and a cluster that exists is one: expected comparisons on gate-%s (such as the profile one-cluster, or --variants)", p.Name, servers, cell.Gate)
	case string(servers[0].Gate()) != "gate-"+cell.Gate:
		return fmt.Sprintf("the profile %s is about the server %s, and the cluster has the gate %s: expected comparisons on gate-%s", p.Name, servers[0], cell.Gate, cell.Gate)
	case p.Starts > 1:
		return fmt.Sprintf("--starts %d: a cluster that exists is not started anew: expected 1", p.Starts)
	case o.Engine == Pods && o.Image == "":
		return fmt.Sprintf("--engine %s: expected --image beside it, with an image of authzconf that the nodes can pull", Pods)
	}
	return ""
}

// claim makes sure of a cluster that somebody else made, before anything is made in it: that a storm can be had and
// counted there, and that there is no other. All that is refused is the user's to mend.
func (r *runner) claim(ctx context.Context, s *controlPlane) error {
	refused := func(format string, args ...any) error {
		return &usage.Error{Problem: fmt.Sprintf(format+"; nothing was created", args...)}
	}
	admin, anonymous := s.credentials()
	if why := outOfReach(anonymous); why != "" {
		return refused("the agents connect to the cluster without a client's configuration, and the kubeconfig %s", why)
	}
	lacking, err := r.lacking(ctx)
	if err != nil {
		return err
	}
	if len(lacking) > 0 {
		return refused("the user of the kubeconfig lacks permissions: %s", strings.Join(lacking, ", "))
	}
	counted, err := s.read() // decisions are among them from the first on, which there may not have been yet
	if err != nil {
		return refused("without a recorder the API server's metrics are what counts, and they cannot be read: %v", err)
	}
	if _, there := counted.of(processStart); !there {
		return refused("without a recorder the API server's metrics are what counts, and /metrics has no %s", processStart)
	}
	if err := r.tellApart(ctx, s, admin); err != nil {
		return refused("without a recorder the API server's metrics are what counts, and %v", err)
	}
	if err := r.Existing.Existing.Claim(ctx, shard.Namespace, population.Label); err != nil {
		return err
	}
	nodes := r.Profile.Nodes + 1
	r.Said(fmt.Sprintf("makes in the cluster %d nodes that are not there, %d pods on them, %d tokens, %d namespaces with their service accounts, and cluster roles with their bindings; all have the label %s and are removed at the end",
		nodes, nodes*r.Profile.PodsPerNode+len(r.Profile.Used())*(r.Profile.Identities()+1), r.Profile.Minted(), len(r.Profile.Used())+2, existing.Label))
	r.circumstances()
	return nil
}

// tellApart makes sure that the metrics of every API server are read: of those that the cluster lists, and of those that
// answer on the address of the kubeconfig, each told by when it began.
func (r *runner) tellApart(ctx context.Context, s *controlPlane, admin *rest.Config) (err error) {
	for _, host := range r.APIServers {
		one := rest.CopyConfig(admin)
		one.Host = host
		began, err := several(ctx, one, 1)
		if err != nil || len(began) == 0 || slices.Contains(s.known, began[0]) {
			return fmt.Errorf("those of --api-servers %s cannot be read, or are those of another: %v %w", host, began, err)
		}
		s.each, s.known = append(s.each, one), append(s.known, began[0])
	}
	listed, err := apiServers(ctx, admin)
	if err != nil {
		return err
	}
	behind, err := several(ctx, admin, connections)
	if err != nil {
		return fmt.Errorf("they cannot be read: %w", err)
	}
	if len(r.APIServers) == 0 {
		s.known = behind[:min(1, len(behind))]
	}
	if others := s.unknown(behind); len(listed) > max(1, len(s.each)) || len(others) > 0 {
		return fmt.Errorf("the cluster has %d API servers (%s), of which %d are read: expected the address of each in --api-servers", max(len(listed), len(behind)), strings.Join(append(listed, others...), ", "), max(1, len(s.each)))
	}
	return nil
}

// unknown are the API servers that are not those whose metrics are read.
func (s *controlPlane) unknown(began []string) []string {
	return slices.DeleteFunc(slices.Clone(began), func(b string) bool { return slices.Contains(s.known, b) })
}

func (r *runner) circumstances() {
	agents := "the agents ran in processes beside authzconf, outside the cluster"
	if r.Engine == Pods {
		agents = "the agents ran in pods of the cluster, with the image " + r.Image
	}
	nodes := map[bool]string{true: "kept Ready by kwok", false: "without a kubelet or status"}[r.Kwok]
	r.out.Notes = append(r.out.Notes, "the cluster is one that exists: "+agents+"; their nodes are objects "+nodes+"; no review was seen, and all counts are the API server's own metrics")
}

func outOfReach(c *rest.Config) string {
	at, err := url.Parse(c.Host)
	switch {
	case err != nil || at.Scheme != "https" || strings.Trim(at.Path, "/") != "":
		return fmt.Sprintf("has the server %s: expected https://HOST:PORT", c.Host)
	case c.Insecure:
		return "skips the verification of certificates: expected certificate-authority-data"
	case c.ServerName != "":
		return "has a tls-server-name: expected an address that is in the server's certificate"
	case c.Proxy != nil:
		return "has a proxy-url: expected an address that can be reached without"
	}
	return ""
}

func (r *runner) lacking(ctx context.Context) (texts []string, err error) {
	needs := existing.Storming(existing.Storm{Pods: r.Engine == Pods, Kwok: r.Kwok, Level: r.Profile.PriorityLevel != nil})
	cluster := r.Existing.Existing
	if texts, err = cluster.Lacking(ctx, needs); err != nil {
		return nil, err
	}
	// Who may not escalate grants what he has.
	free, err := cluster.Lacking(ctx, existing.Granting())
	if err != nil || len(free) == 0 {
		return texts, err
	}
	needs = nil
	for _, v := range r.Profile.Variants() {
		for _, g := range population.Grants(v) {
			needs = append(needs, existing.Needs(strings.Join(g.Verbs, " "), g.APIGroups[0], g.Resources...)...)
		}
	}
	needs = slices.SortedFunc(maps.Keys(sets.New(needs...)), func(a, b existing.Need) int { return strings.Compare(a.String(), b.String()) })
	if granted, err := cluster.Lacking(ctx, needs); err != nil || len(granted) > 0 {
		return append(texts, fmt.Sprintf("and escalate and bind clusterroles.rbac.authorization.k8s.io, or what the agents are granted: %s", strings.Join(granted, ", "))), err
	}
	return texts, nil
}

// others says how many checks an API server allowed while no agent asked. Where nobody else counts, as many as that is for
// a block are subtracted, and checks of impersonation are a problem: nobody knows whose they are.
func (r *runner) others(name profile.Server, increased []sample) int64 {
	blocks, checks, attempts := float64(r.Profile.Block)/float64(r.idleLength()), 0.0, 0.0
	for _, s := range increased {
		switch {
		case s.family == decisions && s.labels["decision"] == "allowed":
			checks += s.value
		case s.family == authorizationAttempts:
			attempts += s.value
		case s.family == cpuSeconds:
			if _, known := r.idle[name][run.APIServer]; !known {
				r.idle[name][run.APIServer] = run.Cost{Idle: run.Duration(s.value * blocks * float64(time.Second))}
			}
		}
	}
	if !r.alone() {
		return 0
	}
	if attempts > 0 {
		r.problem(-1, "others impersonate on %s: it counted %.0f checks of impersonation in %s without agents", name, attempts, r.idleLength())
	}
	r.background[name] = int64(math.Round(checks * blocks))
	return int64(checks)
}

// steady says whether no server allowed more or fewer checks than before, but for three standard deviations of chance.
func steady(before, now map[profile.Server]int64) bool {
	for name, n := range now {
		if change := n - before[name]; float64(change*change) > 9*float64(n+before[name]) || before == nil && n > 0 {
			return false
		}
	}
	return true
}

func (r *runner) noteOthers(checks map[profile.Server]int64) {
	for _, name := range r.Profile.Servers() {
		if r.alone() {
			r.out.Notes = append(r.out.Notes, fmt.Sprintf("%s allowed %d checks of others in %s without agents: %d are subtracted from those of each block of %s",
				name, checks[name], r.idleLength(), r.background[name], r.Profile.Block))
		}
	}
}

// watchOthers watches once more when all blocks are over: what was subtracted has to be what others still ask.
func (r *runner) watchOthers(ctx context.Context) {
	if len(r.out.Problems) > 0 || !r.alone() {
		return
	}
	before := map[profile.Server]int64{}
	for name, n := range r.background {
		before[name] = int64(float64(n) * float64(r.idleLength()) / float64(r.Profile.Block))
	}
	if r.can().Foreign {
		s := r.servers[r.Profile.Servers()[0]]
		admin, _ := s.credentials()
		began, err := several(ctx, admin, connections)
		if others := s.unknown(began); err != nil || len(others) > 0 {
			r.problem(-1, "after the last block other API servers answer (%s) than were counted: %v", strings.Join(others, ", "), err)
		}
	}
	if now := r.idleOnce(ctx); ctx.Err() == nil && !steady(before, now) {
		r.uneven("in %s without agents %v checks before the first block, %v after the last", r.idleLength(), before, now)
	}
}

// withoutOwn takes away the checks of the requests themselves from every block.
func withoutOwn(blocks []run.Block) {
	for i := range blocks {
		b := &blocks[i]
		b.Background, b.Reviews = 0, slices.DeleteFunc(b.Reviews, func(c run.ReviewCount) bool { return c.Mode == run.RequestMode })
	}
}

// replaced says whether another process answers for a server that this run does not start.
func (r *runner) replaced(before, after counters) error {
	if r.can().Foreign && !after.began().Equal(before.began()) {
		return fmt.Errorf("the API server whose metrics are read began at %s before the block, and at %s after it: it was restarted, or there are several", before.began().Format(time.RFC3339), after.began().Format(time.RFC3339))
	}
	return nil
}

// connections is how many servers a balancer is asked for: of two, each is missed by chance once in 2^15.
const connections = 16

// several are the API servers that answer on an address, each by when it began. Every request has a connection of its own,
// for a balancer keeps to what it chose for as long as a connection lasts.
func several(ctx context.Context, admin *rest.Config, connections int) (began []string, err error) {
	for range connections {
		one, err := unshared(ctx, admin, processStart)
		if err != nil {
			return nil, err
		}
		if s, there := one.of(processStart); there {
			began = append(began, fmt.Sprintf("begun at %s", time.UnixMilli(int64(1000*s.value)).UTC().Format(time.RFC3339Nano)))
		}
	}
	return sets.List(sets.New(began...)), nil
}

// unshared reads metrics by a request whose connection is used no more.
func unshared(ctx context.Context, admin *rest.Config, names ...string) (counters, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	client, err := rest.HTTPClientFor(admin)
	if err != nil {
		return nil, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, admin.Host+"/metrics?"+url.Values{"name[]": names}.Encode(), nil)
	if err != nil {
		return nil, err
	}
	q.Close = true
	answer, err := client.Do(q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return nil, err
	}
	return readCounters(families)
}
