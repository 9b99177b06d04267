package kind

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/internal/usage"
)

// balancerImage is the image of the load balancer that kind sets before several control planes
// (sigs.k8s.io/kind/pkg/cluster/internal/loadbalancer, which nobody else can import).
const balancerImage = "docker.io/envoyproxy/envoy:v1.36.2"

// apiServerPort is where an API server listens on its node.
const apiServerPort = "6443"

// controlPlanes returns the nodes of the control plane, as kind names them.
func (c *Cluster) controlPlanes() []string {
	names := []string{c.controlPlane()}
	for i := range c.opts.ControlPlanes {
		names = append(names, fmt.Sprintf("%s%d", c.controlPlane(), i+2))
	}
	return names
}

// servers returns the versions and node images of all API servers, that of Options.Version first.
func (o Options) servers() []Worker {
	all := []Worker{{Version: o.Version, Image: o.Image}}
	for _, node := range o.ControlPlanes {
		all = append(all, Worker{Version: cmp.Or(node.Version, o.Version), Image: node.Image})
	}
	return all
}

// baseImage returns the node image of all nodes of the control plane: the oldest of its API servers. Whatever else runs
// there is not newer than any API server then, as the version skew policy asks; newer API servers are brought afterwards.
func (o Options) baseImage() string {
	if o.Version == "" {
		return o.Image // an image that was named by itself
	}
	oldest := slices.MinFunc(o.servers(), func(a, b Worker) int {
		return cmp.Compare(0, minorsBetween(a.Version, b.Version))
	})
	return oldest.Image
}

// APIServers returns the configurations of administrators of each API server by itself, by node.
func (c *Cluster) APIServers() map[string]*rest.Config {
	byNode := map[string]*rest.Config{}
	for node, host := range c.hosts {
		config := rest.CopyConfig(c.admin)
		config.Host = host
		byNode[node] = config
	}
	return byNode
}

// findHosts finds the addresses of the API servers. Where there is one it is at the port that kind has published.
func (c *Cluster) findHosts(ctx context.Context, published string) error {
	c.hosts = map[string]string{c.controlPlane(): published}
	if len(c.opts.ControlPlanes) == 0 {
		return nil
	}
	for _, node := range c.controlPlanes() {
		address, err := runEngine(ctx, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}", node)
		if err != nil {
			return err
		}
		c.hosts[node] = "https://" + net.JoinHostPort(strings.Fields(address + " ")[0], apiServerPort)
	}
	return nil
}

// bringVersions gives the nodes of the control plane the API servers of the versions that were asked for, where these are
// newer than what the nodes were made with.
func (c *Cluster) bringVersions(ctx context.Context) error {
	base := c.opts.baseImage()
	for i, server := range c.opts.servers() {
		if server.Image == base {
			continue
		}
		o := c.opts
		o.Image = server.Image
		if err := c.replaceServer(ctx, c.controlPlanes()[i], o); err != nil {
			return err
		}
	}
	return nil
}

// writtenManifest is what was put into the manifest of an API server: arguments, and the node image that its program is of.
type writtenManifest struct {
	args  []arg
	image string
}

// manifestOf returns what the manifest on a node has, also if the API server has not become ready with it.
func (c *Cluster) manifestOf(node string) writtenManifest {
	if written, isKnown := c.manifests[node]; isKnown {
		return written
	}
	return writtenManifest{c.opts.args(), c.opts.baseImage()}
}

// replaceServer gives one node of the control plane the API server that o describes, and returns when it is ready.
func (c *Cluster) replaceServer(ctx context.Context, node string, o Options) error {
	started, err := c.startTime(ctx, node)
	if err != nil {
		started = 0 // it does not run: any is a new one
	}
	image := ""
	if o.Image != c.manifestOf(node).image {
		if image, err = c.bringAPIServer(ctx, node, o); err != nil {
			return err
		}
	}
	if err := c.rewriteManifest(ctx, node, o, image, time.Now()); err != nil {
		return err
	}
	return c.awaitReplaced(ctx, node, started)
}

// checkBalancer checks that the engine has, or can pull, the image of kind's load balancer.
func checkBalancer(ctx context.Context) error {
	if hasImage(ctx, balancerImage) {
		return nil
	}
	if _, err := runEngine(ctx, "pull", "--quiet", balancerImage); err != nil {
		return engineError(ctx, err, fmt.Sprintf("several control planes need kind's load balancer, whose image %s is not there and cannot be pulled", balancerImage),
			"ci/kind-node/build-balancer builds a stand-in without a registry")
	}
	return nil
}

// checkMemory checks that this machine has memory for the nodes.
func (o Options) checkMemory() error {
	needed := int64(1+len(o.ControlPlanes))*controlPlaneBytes + int64(len(o.Workers))*workerBytes
	available, known := availableMemory()
	if !known || available >= needed {
		return nil
	}
	return &usage.Error{
		Problem: fmt.Sprintf("%d control planes and %d workers need %d MiB of memory, and this machine has %d available",
			1+len(o.ControlPlanes), len(o.Workers), needed>>20, available>>20),
		Hint: "ask for fewer nodes (--control-planes, --nodes-kubernetes), fewer at once (--parallel), or end other programs",
	}
}

// lineMerger hands lines of several files to one receiver, which gets each line in one piece.
type lineMerger struct {
	mu sync.Mutex
	to interface{ Write(p []byte) (int, error) }
}

// lines is one of the files of a lineMerger. It keeps what does not end with a newline until the rest has come.
type lines struct {
	merger *lineMerger
	rest   []byte
}

// Write passes on the lines that are complete.
func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	end := bytes.LastIndexByte(l.rest, '\n') + 1
	if end == 0 {
		return len(p), nil
	}
	l.merger.mu.Lock()
	defer l.merger.mu.Unlock()
	if _, err := l.merger.to.Write(l.rest[:end]); err != nil {
		return 0, err
	}
	l.rest = append([]byte(nil), l.rest[end:]...)
	return len(p), nil
}

// eachServer does something with the API servers of all nodes of the control plane at once.
func (c *Cluster) eachServer(ctx context.Context, do func(ctx context.Context, node string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range c.controlPlanes() {
		group.Go(func() error { return do(ctx, node) })
	}
	return group.Wait()
}
