package kind

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/internal/usage"
)

// minFreeBytes is how much space the engine's disk must have. Two nodes write some 1.5 GB more than their image.
const minFreeBytes = 3 << 30

// runEngine runs a command of the container engine's client, and returns the text that it prints.
func runEngine(ctx context.Context, args ...string) (string, error) {
	out, err := runEngineBytes(ctx, nil, args...)
	return strings.TrimSpace(string(out)), err
}

// runEngineBytes does the same as runEngine for output that is not text, with input if there is any.
func runEngineBytes(ctx context.Context, input io.Reader, args ...string) ([]byte, error) {
	p, err := findProgram(ctx)
	if err != nil {
		return nil, err
	}
	var out, problems bytes.Buffer
	c := exec.CommandContext(ctx, p.name, args...)
	c.Stdin, c.Stdout, c.Stderr = input, &out, &problems
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%s %s: %s", p.name, args[0], cmp.Or(strings.TrimSpace(problems.String()), err.Error()))
	}
	return out.Bytes(), nil
}

// CheckEngine returns an error that says what is missing on this machine to run clusters at all.
func CheckEngine(ctx context.Context) error {
	p, err := findProgram(ctx)
	if err != nil {
		return &usage.Error{
			Problem: err.Error(),
			Hint:    "kind needs a container engine; ci/kind-node/README.md says how to have one",
			Err:     err,
		}
	}
	if _, err := runEngine(ctx, "version", "--format", p.serverVersion); err != nil {
		where := p.name
		if p.name == programs[0].name {
			where = cmp.Or(os.Getenv("DOCKER_HOST"), "docker's usual address (DOCKER_HOST is not set)")
		}
		return engineError(
			ctx,
			err,
			"no container engine answers at "+where,
			`start one, for example with eval "$(ci/kind-node/engine start)"`,
		)
	}
	return p.checkDisk(ctx)
}

// engineError returns an error that says what the user can do about an error of the engine, unless it was only
// interrupted.
func engineError(ctx context.Context, err error, problem, hint string) error {
	if ctx.Err() != nil {
		return err
	}
	return &usage.Error{Problem: fmt.Sprintf("%s: %v", problem, err), Hint: hint, Err: err}
}

func (p program) checkDisk(ctx context.Context) error {
	root, err := runEngine(ctx, "info", "--format", p.storage)
	if err != nil {
		return err
	}
	var s unix.Statfs_t
	if unix.Statfs(root, &s) != nil {
		return nil //nolint:nilerr // the disk of an engine on another machine cannot be seen, and kind fails if it is full
	}
	if free := s.Bavail * uint64(s.Bsize); free < minFreeBytes {
		return &usage.Error{
			Problem: fmt.Sprintf(
				"the container engine's disk (%s) has %d MiB free, and a cluster needs %d",
				root,
				free>>20,
				minFreeBytes>>20,
			),
			Hint: p.name + " system prune, or authzconf clean, may free some",
		}
	}
	return nil
}

// findImage returns the name of a node image that the engine has. It is the requested one or, instead of kindest/node
// of a version, the one that was built here. If the engine has neither, the first has to be pulled.
func findImage(ctx context.Context, image string) string {
	tag, isDefault := strings.CutPrefix(image, ImageRepository+":")
	if !isDefault || hasImage(ctx, image) {
		return image
	}
	if built := BuiltRepository + ":" + tag; hasImage(ctx, built) {
		return built
	}
	return image
}

func hasImage(ctx context.Context, image string) bool {
	_, err := imageID(ctx, image)
	return err == nil
}

// imageID returns the ID of an image that the engine has.
func imageID(ctx context.Context, image string) (string, error) {
	return runEngine(ctx, "image", "inspect", "--format", "{{.Id}}", image)
}

// imageVersions are the versions of the node images that this process has looked into, by the ID of the image.
var imageVersions sync.Map

// ImageVersion returns the version of Kubernetes in a node image, without a v. It pulls the image if necessary, and
// proves that the engine runs privileged containers, as kind's nodes are. It looks into an image only once.
func ImageVersion(ctx context.Context, image string) (string, error) {
	id, err := imageID(ctx, image)
	if err != nil {
		if _, err := runEngine(ctx, "pull", "--quiet", image); err != nil {
			return "", engineError(ctx, err, fmt.Sprintf("the node image %s is not there and cannot be pulled", image),
				"name another with --kind-node-image; make kind-node-image KUBERNETES=1.37 builds one without a registry")
		}
		if id, err = imageID(ctx, image); err != nil {
			return "", err
		}
	}
	if version, isKnown := imageVersions.Load(id); isKnown {
		return version.(string), nil
	}
	version, err := readVersion(ctx, image)
	if err == nil {
		imageVersions.Store(id, version)
	}
	return version, err
}

// readVersion returns the version that a node image says of itself.
func readVersion(ctx context.Context, image string) (string, error) {
	out, err := runEngine(ctx, "run", "--rm", "--privileged", "--network", "none", "--entrypoint", "cat", image, "/kind/version")
	if err != nil {
		if strings.Contains(err.Error(), "unable to apply caps") || strings.Contains(err.Error(), "operation not permitted") {
			return "", engineError(ctx, err, "the container engine cannot run privileged containers",
				`kind's nodes are such; eval "$(ci/kind-node/engine start)" starts an engine that can`)
		}
		return "", engineError(ctx, err, image+" is not a node image of kind", "a node image says its version in /kind/version")
	}
	version, found := strings.CutPrefix(out, "v")
	if !found {
		return "", &usage.Error{Problem: fmt.Sprintf("%s is not a node image of kind: /kind/version is %.40q", image, out)}
	}
	return version, nil
}

// Leftovers returns the clusters of authzconf whose run is over: they were kept, or their process was killed.
func Leftovers(ctx context.Context) ([]string, error) {
	p, err := findProgram(ctx)
	if err != nil {
		return nil, err
	}
	out, err := runEngine(ctx, "ps", "--all", "--filter", "label="+clusterLabel, "--format", p.clusterOf)
	if err != nil {
		return nil, err
	}
	names := slices.Compact(slices.Sorted(strings.FieldsSeq(out)))
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, NamePrefix) || inUse(name) }), nil
}

// Remove deletes a cluster with all that belongs to it.
func Remove(ctx context.Context, name string) error {
	return errors.Join(removeContainers(ctx, name), removeState(name))
}

// clusterLabel is the label of kind's containers.
const clusterLabel = "io.x-k8s.kind.cluster"

// These are how often and at which intervals it is tried to remove containers that the engine cannot end yet. On a busy
// machine the kernel needs time for the processes of a node.
const (
	removeAttempts = 10
	removePause    = 2 * time.Second
)

// removeContainers does the same as kind's Delete, and can be interrupted. It is not an error if the containers are
// gone already.
func removeContainers(ctx context.Context, name string) error {
	var last error
	for range removeAttempts {
		out, err := runEngine(ctx, "ps", "--all", "--quiet", "--filter", "label="+clusterLabel+"="+name)
		ids := strings.Fields(out)
		if err != nil || len(ids) == 0 {
			return err
		}
		_, last = runEngine(ctx, append([]string{"rm", "--force", "--volumes"}, ids...)...)
		if last == nil || !clusters.Pause(ctx, removePause) {
			return last
		}
	}
	return last
}

const networkName = "kind"

// Network is the engine's network of kind's nodes.
type Network struct {
	// Gateway is the address of this machine on the network. Subnet contains the addresses of its members.
	Gateway netip.Addr
	Subnet  netip.Prefix
}

// FindNetwork returns kind's network. If there is none yet, it creates it as kind would, because whoever listens for
// nodes needs its address before there are any. Docker allows two networks with the same name, and then neither can be
// used by the name. So the network is created with a lock between processes, and of duplicates that others created only
// one is kept.
func FindNetwork(ctx context.Context) (Network, error) {
	if err := CheckEngine(ctx); err != nil {
		return Network{}, err
	}
	network, err := ensureNetwork(ctx, networkName)
	if err != nil {
		return Network{}, err
	}
	return network.parse()
}

func ensureNetwork(ctx context.Context, name string) (dockerNetwork, error) {
	root, err := local.StateRoot()
	if err != nil {
		return dockerNetwork{}, err
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return dockerNetwork{}, engineError(
			ctx,
			err,
			"cannot make the folder of clusters",
			"set "+local.StateVariable+" to a folder that can be written",
		)
	}
	lock, err := local.WaitLock(ctx, filepath.Join(root, networkLock), nil)
	if err != nil {
		return dockerNetwork{}, err
	}
	defer lock.Unlock()
	networks, err := networksOf(ctx, name)
	if err == nil && len(networks) == 0 {
		if err := createNetwork(ctx, name); err != nil && !strings.Contains(err.Error(), "already exists") {
			return dockerNetwork{}, err
		}
		networks, err = networksOf(ctx, name)
	}
	if err != nil {
		return dockerNetwork{}, err
	}
	if len(networks) == 0 {
		return dockerNetwork{}, fmt.Errorf("the engine's network %s is gone right after it was made", name)
	}
	for _, double := range networks[1:] {
		_, err := runEngine(ctx, "network", "rm", double.ID)
		if err != nil && !saysItIsGone(err) {
			return dockerNetwork{}, engineError(
				ctx,
				err,
				fmt.Sprintf("the engine has %d networks named %s, and one of them cannot be removed", len(networks), name),
				"stop the containers on it, then remove it: network rm "+double.ID,
			)
		}
	}
	return networks[0], nil
}

// saysItIsGone reports whether a network cannot be removed because somebody else has removed it already.
func saysItIsGone(err error) bool {
	return strings.Contains(err.Error(), "No such network") || strings.Contains(err.Error(), "not found")
}

func createNetwork(ctx context.Context, name string) error {
	p, err := findProgram(ctx)
	if err != nil {
		return err
	}
	args := append([]string{"network", "create", "--driver", "bridge"}, p.networkOptions...)
	_, err = runEngine(ctx, append(args, name)...)
	return err
}

const networkLock = "network.lock"

type dockerNetwork struct {
	ID   string `json:"Id"`
	IPAM struct {
		Config []struct{ Subnet, Gateway string }
	}
	Containers map[string]any
	Subnets    []struct{ Subnet, Gateway string } // where podman says it, and not in IPAM
}

// networksOf returns all networks with a name, in kind's order: it uses the first one (docker/network.go,
// sortNetworkInspectEntries).
func networksOf(ctx context.Context, name string) ([]dockerNetwork, error) {
	ids, err := runEngine(ctx, "network", "ls", "--no-trunc", "--filter", "name=^"+name+"$", "--format", "{{.ID}}")
	if err != nil || ids == "" {
		return nil, err
	}
	out, err := runEngine(ctx, append([]string{"network", "inspect"}, strings.Fields(ids)...)...)
	if err != nil {
		return nil, err
	}
	return parseNetworks([]byte(out))
}

func parseNetworks(data []byte) (networks []dockerNetwork, _ error) {
	if err := json.Unmarshal(data, &networks); err != nil {
		return nil, fmt.Errorf("network inspect: %w", err)
	}
	slices.SortFunc(networks, func(a, b dockerNetwork) int {
		return cmp.Or(cmp.Compare(len(b.Containers), len(a.Containers)), cmp.Compare(a.ID, b.ID))
	})
	return networks, nil
}

func (n dockerNetwork) parse() (Network, error) {
	for _, c := range append(n.IPAM.Config, n.Subnets...) {
		subnet, err := netip.ParsePrefix(c.Subnet)
		if err != nil || !subnet.Addr().Is4() {
			continue
		}
		gateway, err := netip.ParseAddr(c.Gateway)
		if err != nil {
			gateway = subnet.Masked().Addr().Next() // docker's own choice
		}
		return Network{Gateway: gateway, Subnet: subnet.Masked()}, nil
	}
	return Network{}, fmt.Errorf("the engine's network %s has no IPv4 subnet", networkName)
}

// Address implements clusters.Network.
func (n Network) Address() netip.Addr { return n.Gateway }

// Listen opens a port on this machine's address of the network. Connections from elsewhere are closed at once.
func (n Network) Listen(ctx context.Context) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(n.Gateway, 0).String())
	if err != nil {
		return nil, engineError(
			ctx,
			err,
			fmt.Sprintf("cannot listen on %s, this machine's address on the network of kind's nodes", n.Gateway),
			"the container engine has to run on this machine",
		)
	}
	return &memberListener{Listener: l, subnet: n.Subnet}, nil
}

type memberListener struct {
	net.Listener
	subnet netip.Prefix
}

func (l *memberListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, err := netip.ParseAddrPort(c.RemoteAddr().String())
		if err == nil && l.subnet.Contains(from.Addr().Unmap()) {
			return c, nil
		}
		_ = c.Close()
	}
}
