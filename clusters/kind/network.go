package kind

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/authzconf/authzconf/clusters/local"
)

// networkName is the network that kind puts its nodes on.
const networkName = "kind"

// Network is the engine's network of kind's nodes.
type Network struct {
	// Gateway is this machine's address on it, Subnet what its members' addresses
	// are in.
	Gateway netip.Addr
	Subnet  netip.Prefix
}

// FindNetwork returns kind's network, and makes it as kind would if there is
// none yet: whoever listens for nodes needs its address before there are any.
func FindNetwork(ctx context.Context) (Network, error) {
	if err := CheckEngine(ctx); err != nil {
		return Network{}, err
	}
	out, err := docker(ctx, "network", "inspect", networkName)
	if err != nil {
		if ctx.Err() != nil {
			return Network{}, err
		}
		if _, err := docker(ctx, "network", "create", "--driver", "bridge",
			"--opt", "com.docker.network.bridge.enable_ip_masquerade=true", networkName); err != nil && !strings.Contains(err.Error(), "already exists") {
			return Network{}, err
		}
		if out, err = docker(ctx, "network", "inspect", networkName); err != nil {
			return Network{}, err
		}
	}
	return parseNetwork([]byte(out))
}

// parseNetwork takes the first IPv4 subnet of what docker says of a network.
func parseNetwork(data []byte) (Network, error) {
	var networks []struct {
		IPAM struct {
			Config []struct{ Subnet, Gateway string }
		}
	}
	if err := json.Unmarshal(data, &networks); err != nil {
		return Network{}, fmt.Errorf("docker network inspect: %w", err)
	}
	for _, n := range networks {
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
	}
	return Network{}, fmt.Errorf("docker's network %s has no IPv4 subnet", networkName)
}

// Listen opens a port on this machine's address of the network. Connections from
// anywhere but the network are closed at once.
func (n Network) Listen(ctx context.Context) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(n.Gateway, 0).String())
	if err != nil {
		return nil, &local.UsageError{
			Problem: fmt.Sprintf("cannot listen on %s, this machine's address on the network of kind's nodes: %v", n.Gateway, err),
			Hint:    "the container engine has to run on this machine", Err: err,
		}
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
