package kind

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/clusters/local"
)

// networkName is the network that kind puts its nodes on.
const networkName = "kind"

// Network is the engine's network of kind's nodes.
type Network struct {
	// Gateway is this machine's address on it, Subnet what its members' addresses are in.
	Gateway netip.Addr
	Subnet  netip.Prefix
}

// FindNetwork returns kind's network, and makes it as kind would if there is none yet: whoever listens for nodes
// needs its address before there are any. Docker lets two networks have one name, and then neither can be used by
// it; so the network is made under a lock between processes, and of doubles that others made one is kept.
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
		return dockerNetwork{}, usage(ctx, err, "cannot make the folder of clusters", "set "+local.StateVariable+" to a folder that can be written")
	}
	lock, err := local.WaitLock(ctx, filepath.Join(root, networkLock), nil)
	if err != nil {
		return dockerNetwork{}, err
	}
	defer lock.Unlock()
	found, err := networksOf(ctx, name)
	if err == nil && len(found) == 0 {
		if _, err = docker(ctx, "network", "create", "--driver", "bridge",
			"--opt", "com.docker.network.bridge.enable_ip_masquerade=true", name); err != nil && !strings.Contains(err.Error(), "already exists") {
			return dockerNetwork{}, err
		}
		found, err = networksOf(ctx, name)
	}
	if err != nil {
		return dockerNetwork{}, err
	}
	if len(found) == 0 {
		return dockerNetwork{}, fmt.Errorf("docker's network %s is gone right after it was made", name)
	}
	for _, double := range found[1:] {
		if _, err := docker(ctx, "network", "rm", double.ID); err != nil && !isGone(err) {
			return dockerNetwork{}, usage(ctx, err, fmt.Sprintf("docker has %d networks named %s, and one of them cannot be removed", len(found), name),
				"stop the containers on it, then: docker network rm "+double.ID)
		}
	}
	return found[0], nil
}

// networkLock is the file whose lock is held while the network is made.
const networkLock = "network.lock"

// isGone says whether docker refused because somebody else has removed the network already.
func isGone(err error) bool {
	return strings.Contains(err.Error(), "No such network") || strings.Contains(err.Error(), "not found")
}

// dockerNetwork is what docker says of a network.
type dockerNetwork struct {
	ID   string `json:"Id"`
	IPAM struct {
		Config []struct{ Subnet, Gateway string }
	}
	Containers map[string]any
}

// networksOf returns all networks of a name, in the order in which kind keeps them: the first is the one it
// uses (docker/network.go, sortNetworkInspectEntries).
func networksOf(ctx context.Context, name string) ([]dockerNetwork, error) {
	ids, err := docker(ctx, "network", "ls", "--no-trunc", "--filter", "name=^"+name+"$", "--format", "{{.ID}}")
	if err != nil || ids == "" {
		return nil, err
	}
	out, err := docker(ctx, append([]string{"network", "inspect"}, strings.Fields(ids)...)...)
	if err != nil {
		return nil, err
	}
	return parseNetworks([]byte(out))
}

func parseNetworks(data []byte) ([]dockerNetwork, error) {
	var networks []dockerNetwork
	if err := json.Unmarshal(data, &networks); err != nil {
		return nil, fmt.Errorf("docker network inspect: %w", err)
	}
	slices.SortFunc(networks, func(a, b dockerNetwork) int {
		return cmp.Or(cmp.Compare(len(b.Containers), len(a.Containers)), cmp.Compare(a.ID, b.ID))
	})
	return networks, nil
}

// parse takes the first IPv4 subnet.
func (n dockerNetwork) parse() (Network, error) {
	for _, c := range n.IPAM.Config {
		subnet, err := netip.ParsePrefix(c.Subnet)
		if err != nil || !subnet.Addr().Is4() {
			continue
		}
		gateway, err := netip.ParseAddr(c.Gateway)
		if err != nil {
			gateway = subnet.Masked().Addr().Next() // what docker takes by itself
		}
		return Network{Gateway: gateway, Subnet: subnet.Masked()}, nil
	}
	return Network{}, fmt.Errorf("docker's network %s has no IPv4 subnet", networkName)
}

// Listen opens a port on this machine's address of the network. Connections from
// anywhere but the network are closed at once.
func (n Network) Listen(ctx context.Context) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(n.Gateway, 0).String())
	if err != nil {
		return nil, usage(ctx, err, fmt.Sprintf("cannot listen on %s, this machine's address on the network of kind's nodes", n.Gateway),
			"the container engine has to run on this machine")
	}
	return &memberListener{Listener: l, subnet: n.Subnet}, nil
}

// memberListener accepts members of a network only.
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
