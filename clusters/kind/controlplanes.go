package kind

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// balancerImage is the image of the load balancer that kind puts in front of several control planes
// (sigs.k8s.io/kind/pkg/cluster/internal/loadbalancer, which only kind can import).
const balancerImage = "docker.io/envoyproxy/envoy:v1.36.2"

// apiServerPort is the port of an API server on its node.
const apiServerPort = "6443"

// controlPlanes returns the nodes of the control plane, as kind names them.
func (c *Cluster) controlPlanes() []string {
	names := []string{c.controlPlane()}
	for i := range c.opts.ControlPlanes {
		names = append(names, fmt.Sprintf("%s%d", c.controlPlane(), i+2))
	}
	return names
}

// servers returns the versions and node images of all API servers, beginning with that of Options.Version.
func (o Options) servers() []Worker {
	all := []Worker{{Version: o.Version, Image: o.Image}}
	for _, node := range o.ControlPlanes {
		all = append(all, Worker{Version: cmp.Or(node.Version, o.Version), Image: node.Image})
	}
	return all
}

// baseImage returns the node image of all nodes of the control plane, which is that of the oldest API server. So
// nothing else there is newer than any API server, as the version skew policy demands. Newer API servers are brought
// later.
func (o Options) baseImage() string {
	if o.Version == "" {
		return o.Image // an image that was named explicitly
	}
	oldest := slices.MinFunc(o.servers(), func(a, b Worker) int {
		return cmp.Compare(0, minorsBetween(a.Version, b.Version))
	})
	return oldest.Image
}

// Balancer implements clusters.Several.
func (c *Cluster) Balancer() string { return c.balancer }

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

// findHosts finds the addresses of the API servers. A single one is at the port that kind has published.
func (c *Cluster) findHosts(ctx context.Context, published string) error {
	c.hosts = map[string]string{c.controlPlane(): published}
	if len(c.opts.ControlPlanes) == 0 {
		return nil
	}
	c.balancer = published
	for _, node := range c.controlPlanes() {
		address, err := runEngine(ctx, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}", node)
		if err != nil {
			return err
		}
		c.hosts[node] = "https://" + net.JoinHostPort(strings.Fields(address + " ")[0], apiServerPort)
	}
	return nil
}

// bringVersions brings the API servers of the requested versions to nodes of the control plane that were created with
// an older one.
func (c *Cluster) bringVersions(ctx context.Context) error {
	newer := map[string][]string{} // nodes by the image of their API server
	for i, server := range c.opts.servers() {
		if server.Image != c.opts.baseImage() {
			newer[server.Image] = append(newer[server.Image], c.controlPlanes()[i])
		}
	}
	for _, image := range slices.Sorted(maps.Keys(newer)) {
		if err := c.bringAPIServer(ctx, newer[image], image); err != nil {
			return err
		}
		o := c.opts
		o.Image = image
		for _, node := range newer[image] {
			if err := c.replaceServer(ctx, node, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// writtenManifest is what was written to the manifest of an API server: its arguments, and the node image that its
// program is from.
type writtenManifest struct {
	args  []arg
	image string
}

// manifestOf returns what the manifest on a node contains, even if the API server has not become ready with it.
func (c *Cluster) manifestOf(node string) writtenManifest {
	if manifest, isKnown := c.manifests[node]; isKnown {
		return manifest
	}
	return writtenManifest{c.opts.args(), c.opts.baseImage()}
}

// replaceServer gives one node of the control plane the API server that o describes, and returns when it is ready. The
// node already has its image.
func (c *Cluster) replaceServer(ctx context.Context, node string, o Options) error {
	started, err := c.startTime(ctx, node)
	if err != nil {
		started = 0 // it does not run, so any process is a new one
	}
	image := ""
	if o.Image != c.manifestOf(node).image {
		if image, err = nameAPIServer(ctx, o.Image); err != nil {
			return err
		}
	}
	mark := time.Now().Format(time.RFC3339Nano)
	if err := c.rewriteManifest(ctx, node, o, image, mark); err != nil {
		return err
	}
	if err := c.awaitReplaced(ctx, node, started); err != nil {
		return err
	}
	return c.awaitMirror(ctx, node, mark)
}

// checkBalancer checks that the engine has, or can pull, the image of kind's load balancer.
func checkBalancer(ctx context.Context) error {
	if hasImage(ctx, balancerImage) {
		return nil
	}
	if _, err := runEngine(ctx, "pull", "--quiet", balancerImage); err != nil {
		return engineError(
			ctx,
			err,
			fmt.Sprintf(
				"several control planes need kind's load balancer, whose image %s is not there and cannot be pulled",
				balancerImage,
			),
			"ci/kind-node/build-balancer builds a substitute without a registry",
		)
	}
	return nil
}

// eachServer calls a function for the API servers of all nodes of the control plane, at the same time.
func (c *Cluster) eachServer(ctx context.Context, do func(ctx context.Context, node string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range c.controlPlanes() {
		group.Go(func() error { return do(ctx, node) })
	}
	return group.Wait()
}
