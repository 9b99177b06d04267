package storm

import (
	"context"
	"fmt"
	"maps"
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
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/shard"
)

// claim checks a cluster that somebody else made before anything is created in it: whether a storm is possible and can
// be counted there, and whether there is another storm. The user can fix whatever is refused.
func (r *runner) claim(ctx context.Context, s *controlPlane) error {
	refused := func(format string, args ...any) error {
		return &usage.Error{Problem: fmt.Sprintf(format+"; nothing was created", args...)}
	}
	admin, anonymous := s.credentials()
	if why := outOfReach(anonymous); why != "" {
		return refused("the agents connect to the cluster without a client's configuration, and the kubeconfig %s", why)
	}
	missing, err := r.findLacking(ctx)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return refused("the user of the kubeconfig lacks permissions: %s", strings.Join(missing, ", "))
	}
	counts, err := s.read() // decisions are counted only from the first one on, so there may have been none yet
	if err != nil {
		return refused("without a recorder the API server's metrics are what counts, and they cannot be read: %v", err)
	}
	if _, there := counts.find(server.ProcessStartMetric); !there {
		return refused("without a recorder the API server's metrics are what counts, and /metrics has no %s", server.ProcessStartMetric)
	}
	if err := r.tellApart(ctx, s, admin); err != nil {
		return refused("without a recorder the API server's metrics are what counts, and %v", err)
	}
	if err := r.Existing.Existing.Claim(ctx, shard.Namespace, population.Label); err != nil {
		return err
	}
	nodes := r.Profile.Nodes + 1
	r.Say(
		fmt.Sprintf(
			"makes in the cluster %d nodes that are not there, %d pods on them, %d tokens, %d namespaces with their service accounts, and cluster roles with their bindings; all have the label %s and are removed at the end",
			nodes,
			nodes*r.Profile.PodsPerNode+len(r.Profile.Used())*(r.Profile.Identities()+1),
			r.Profile.Minted(),
			len(r.Profile.Used())+2,
			existing.Label,
		),
	)
	r.circumstances()
	return nil
}

// tellApart ensures that the metrics of every API server are read: of those that the cluster lists, and of those that
// answer at the address of the kubeconfig. They are told apart by when they began.
func (r *runner) tellApart(ctx context.Context, s *controlPlane, admin *rest.Config) (err error) {
	for _, host := range r.APIServers {
		one := rest.CopyConfig(admin)
		one.Host = host
		began, err := findAPIServers(ctx, one, 1)
		if err != nil || len(began) == 0 || slices.Contains(s.known, began[0]) {
			return fmt.Errorf("those of --api-servers %s cannot be read, or are those of another: %v %w", host, began, err)
		}
		s.each, s.known = append(s.each, one), append(s.known, began[0])
	}
	listed, err := listAPIServers(ctx, admin)
	if err != nil {
		return err
	}
	behind, err := findAPIServers(ctx, admin, connections)
	if err != nil {
		return fmt.Errorf("they cannot be read: %w", err)
	}
	if len(r.APIServers) == 0 {
		s.known = behind[:min(1, len(behind))]
	}
	if others := s.unknown(behind); len(listed) > max(1, len(s.each)) || len(others) > 0 {
		return fmt.Errorf(
			"the cluster has %d API servers (%s), and only %d of them are read: expected the address of each in --api-servers",
			max(len(listed), len(behind)),
			strings.Join(append(listed, others...), ", "),
			max(1, len(s.each)),
		)
	}
	return nil
}

// unknown returns the API servers whose metrics are not read.
func (s *controlPlane) unknown(began []string) []string {
	return slices.DeleteFunc(slices.Clone(began), func(b string) bool { return slices.Contains(s.known, b) })
}

func (r *runner) circumstances() {
	agents := "the agents ran in processes beside authzconf, outside the cluster"
	if r.Engine == Pods {
		agents = "the agents ran in pods of the cluster, with the image " + r.Image
	}
	nodes := map[bool]string{true: "kept Ready by kwok", false: "without a kubelet or status"}[r.Kwok]
	r.out.Notes = append(r.out.Notes,
		"the cluster is one that exists: "+agents+"; their nodes are objects "+nodes+"; no review was seen, and all counts are the API server's own metrics",
	)
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

func (r *runner) findLacking(ctx context.Context) (texts []string, err error) {
	needs := existing.Storming(existing.Storm{Pods: r.Engine == Pods, Kwok: r.Kwok, Level: r.Profile.PriorityLevel != nil})
	cluster := r.Existing.Existing
	if texts, err = cluster.Lacking(ctx, needs); err != nil {
		return nil, err
	}
	// A user who may not escalate can grant only permissions of their own.
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
	needs = slices.SortedFunc(
		maps.Keys(sets.New(needs...)),
		func(a, b existing.Need) int { return strings.Compare(a.String(), b.String()) },
	)
	if granted, err := cluster.Lacking(ctx, needs); err != nil || len(granted) > 0 {
		return append(texts, fmt.Sprintf("and escalate and bind clusterroles.rbac.authorization.k8s.io, or what the agents are granted: %s", strings.Join(granted, ", "))), err
	}
	return texts, nil
}

// checkReplaced returns an error if another process answers for a server that this run does not start.
func (r *runner) checkReplaced(before, after counters) error {
	if r.can().Foreign && !after.began().Equal(before.began()) {
		return fmt.Errorf(
			"the API server whose metrics are read began at %s before the block, and at %s after it: it was restarted, or there are several",
			before.began().Format(time.RFC3339),
			after.began().Format(time.RFC3339),
		)
	}
	return nil
}

// connections is how often a balancer is asked for a server. Of two servers, each is missed by chance once in 2^15
// times.
const connections = 16

// findAPIServers returns the API servers that answer at an address, each by when it began. Every request uses a
// connection of its own, because a balancer keeps its choice for as long as a connection lasts.
func findAPIServers(ctx context.Context, admin *rest.Config, connections int) (began []string, err error) {
	for range connections {
		one, err := scrapeUnshared(ctx, admin, server.ProcessStartMetric)
		if err != nil {
			return nil, err
		}
		if s, there := one.find(server.ProcessStartMetric); there {
			began = append(began, fmt.Sprintf("begun at %s", time.UnixMilli(int64(1000*s.value)).UTC().Format(time.RFC3339Nano)))
		}
	}
	return sets.List(sets.New(began...)), nil
}

// scrapeUnshared reads metrics by a request whose connection is not used again.
func scrapeUnshared(ctx context.Context, admin *rest.Config, names ...string) (counters, error) {
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
