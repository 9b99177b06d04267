package deputy

import (
	"context"
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/internal/usage"
)

// clusterPlaceholder stands for the name of a cluster in values that are given for two clusters.
const clusterPlaceholder = "{cluster}"

// secondCluster is a second cluster behind the same proxy.
type secondCluster struct {
	name   string
	prefix string // the beginning of the paths of its Kubernetes API
	log    auditLog
	plane  *plane // the control plane; nil if that is somebody else's
}

// checkPlaceholders returns an error unless the values for two clusters contain the clusters' names, and those for one
// cluster do not.
func (p *Proxy) checkPlaceholders() error {
	flags := []struct{ flag, value string }{
		{"--api-prefix", p.APIPrefix},
		{"--audit-log", p.AuditLog},
		{"--kubeconfig", p.Kubeconfig},
		{"--context", p.Context},
	}
	if len(p.clusters) == 0 {
		for _, g := range flags {
			if strings.Contains(g.value, clusterPlaceholder) {
				return fmt.Errorf("%s %s: %s stands for the names of --clusters, which is not given", g.flag, g.value, clusterPlaceholder)
			}
		}
		return nil
	}
	lacksName := func(value string) bool { return !strings.Contains(value, clusterPlaceholder) }
	isRunning := p.Kubeconfig != ""
	switch {
	case p.Requests == "" && lacksName(p.APIPrefix):
		return fmt.Errorf(
			"--api-prefix %q: expected %s in it, which stands for the names of --clusters, such as /k8s/clusters/%s",
			p.APIPrefix,
			clusterPlaceholder,
			clusterPlaceholder,
		)
	case isRunning && strings.HasPrefix(p.AuditLog, webhookSource):
		return fmt.Errorf(
			"--audit-log %s: with --clusters, expected a file or command:COMMAND with %s in it",
			p.AuditLog,
			clusterPlaceholder,
		)
	case isRunning && lacksName(p.AuditLog):
		return fmt.Errorf(
			"--audit-log %s: expected %s in it: each of --clusters has an audit log of its own, such as audit-%s.log",
			p.AuditLog,
			clusterPlaceholder,
			clusterPlaceholder,
		)
	}
	return nil
}

// prefixOf returns the path of the Kubernetes API of the n-th cluster below the URL.
func (p *Proxy) prefixOf(n int) string {
	return strings.TrimRight(p.fillCluster(n).APIPrefix, "/")
}

// fillCluster returns the proxy with the values for the n-th cluster. The cluster's context has its name, unless
// something else is given.
func (p *Proxy) fillCluster(n int) *Proxy {
	out := *p
	if len(p.clusters) == 0 {
		return &out
	}
	name := p.clusters[n]
	if p.Context == "" && !strings.Contains(p.Kubeconfig, clusterPlaceholder) {
		out.Context = name
	}
	for _, value := range []*string{&out.APIPrefix, &out.AuditLog, &out.Kubeconfig, &out.Context} {
		*value = strings.ReplaceAll(*value, clusterPlaceholder, name)
	}
	return &out
}

// clusterEndpoints returns the program that acts for people, as an endpoint of each cluster.
func (ep *endpoint) clusterEndpoints() []*endpoint {
	if ep.other == nil {
		return []*endpoint{ep}
	}
	return []*endpoint{ep, ep.secondEndpoint()}
}

// secondEndpoint returns the program that acts for people, as an endpoint of the second cluster alone.
func (ep *endpoint) secondEndpoint() *endpoint {
	end, to := *ep, *ep.url
	to.Path, to.RawPath = ep.other.prefix, ""
	end.url, end.cluster, end.log, end.plane = &to, ep.other.name, ep.other.log, ep.other.plane
	end.other = nil
	return &end
}

// logs returns the audit log of each cluster.
func (ep *endpoint) logs() []*auditLog {
	if ep.other == nil {
		return []*auditLog{&ep.log}
	}
	return []*auditLog{&ep.log, &ep.other.log}
}

// sendMarked sends a request with a marker directly to each cluster.
func (ep *endpoint) sendMarked(ctx context.Context, marker string) error {
	for _, log := range ep.logs() {
		if err := log.sendMarked(ctx, marker); err != nil {
			return err
		}
	}
	return nil
}

// useLogs uses the audit logs of control planes of ours.
func (ep *endpoint) useLogs(planes []*plane) {
	ep.log, ep.plane = planes[0].auditLog(), planes[0]
	if ep.other != nil {
		ep.other.log, ep.other.plane = planes[1].auditLog(), planes[1]
	}
}

// settle waits until the audit logs show requests that were sent directly to the API servers. With two clusters each
// log has to show only its own: if both were the same log, everything would seem to arrive at both clusters.
func (ep *endpoint) settle(ctx context.Context) error {
	marker := newRun()
	if err := ep.log.settle(ctx, marker); err != nil || ep.other == nil {
		return err
	}
	if err := ep.other.log.settle(ctx, newRun()); err != nil {
		return fmt.Errorf("the cluster %s: %w", ep.other.name, err)
	}
	events, err := ep.other.log.find(marker)
	if err == nil && len(events) > 0 {
		err = &usage.Error{
			Problem: fmt.Sprintf(
				"a request to the cluster %s is in the audit log of %s: they are one cluster, or one log",
				ep.cluster,
				ep.other.name,
			),
		}
	}
	return err
}
