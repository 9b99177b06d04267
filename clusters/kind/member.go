package kind

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/internal/usage"
)

// member is one of several API servers of a cluster, as a cluster of its own. It has its own files and audit log, and
// can be replaced by itself. Nodes and etcd are those of the whole cluster.
type member struct {
	*Cluster
	node    string
	readyIn time.Duration
}

// own returns the nodes of the control plane whose API servers have not become members.
func (c *Cluster) own() []string {
	return slices.DeleteFunc(c.controlPlanes(), func(node string) bool { return slices.Contains(c.joined, node) })
}

// join makes another API server of the cluster a member, and starts it again as o describes it. The first API server
// remains the cluster's.
func (c *Cluster) join(ctx context.Context, o Options) (*member, error) {
	c.life.Lock()
	defer c.life.Unlock()
	others := c.own()[1:]
	if len(others) == 0 {
		return nil, &usage.Error{
			Problem: fmt.Sprintf("all %d API servers of %s are in use", len(c.controlPlanes()), c.name),
			Hint:    "--control-planes says how many there are",
		}
	}
	m := &member{Cluster: c, node: others[0]}
	if log := c.audits[m.node]; log != nil && o.AuditSink != nil {
		log.lines.redirect(o.AuditSink)
	}
	_, took, err := c.restart(ctx, []string{m.node}, o)
	if err != nil {
		return nil, err
	}
	m.readyIn = took
	c.joined = append(c.joined, m.node)
	return m, nil
}

// restartMember replaces the API server of a member by the one that o describes.
func (m *member) restartMember(ctx context.Context, o Options) (err error) {
	m.life.Lock()
	defer m.life.Unlock()
	_, m.readyIn, err = m.restart(ctx, []string{m.node}, o)
	return err
}

// Admin implements clusters.Cluster.
func (m *member) Admin() *rest.Config { return m.at(m.admin) }

// FrontProxy implements clusters.Cluster.
func (m *member) FrontProxy() *rest.Config { return m.at(m.frontProxy) }

// Anonymous implements clusters.Cluster.
func (m *member) Anonymous() *rest.Config { return m.at(m.anonymous) }

// at returns a configuration for the member's address.
func (m *member) at(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Host = m.hosts[m.node]
	return c
}

// Stop implements clusters.Cluster: a member ends with its cluster.
func (m *member) Stop() error { return nil }

// ReadyIn returns how long the last start of the member took.
func (m *member) ReadyIn() time.Duration {
	m.life.Lock()
	defer m.life.Unlock()
	return m.readyIn
}

// ReloadAuthorization implements clusters.Reloader.
func (m *member) ReloadAuthorization(config []byte) error {
	return m.reloadOn([]string{m.node}, config)
}

// ReadCommand implements clusters.CommandReader.
func (m *member) ReadCommand(ctx context.Context) ([]string, error) { return readCommand(ctx, m.node) }

// KillAPIServer implements clusters.Killer.
func (m *member) KillAPIServer() error { return m.kill([]string{m.node}) }
