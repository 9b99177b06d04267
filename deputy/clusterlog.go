package deputy

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/internal/usage"
)

// openAuditLogs opens the audit logs of the clusters behind the proxy, and returns a function that closes them.
func (p *Proxy) openAuditLogs(ctx context.Context) (func() error, error) {
	log, closeLog, err := p.fillCluster(0).openAuditLog(ctx)
	if err != nil {
		return nil, err
	}
	p.endpoint.log = log
	if p.endpoint.other == nil {
		return closeLog, nil
	}
	secondLog, closeOther, err := p.fillCluster(1).openAuditLog(ctx)
	if err != nil {
		return nil, errors.Join(err, closeLog())
	}
	p.endpoint.other.log = secondLog
	return func() error { return errors.Join(closeLog(), closeOther()) }, nil
}

// openAuditLog opens the audit log of a running cluster, and reads it from its present end.
func (p *Proxy) openAuditLog(ctx context.Context) (log auditLog, end func() error, err error) {
	cluster, err := existing.Open(p.Kubeconfig, p.Context, "")
	if err != nil {
		return log, nil, &usage.Error{Problem: "--kubeconfig " + err.Error()}
	}
	client, err := kubernetes.NewForConfig(cluster.Admin())
	if err != nil {
		return log, nil, err
	}
	lines, err := openGrowing(ctx, "audit-log", p.AuditLog)
	if err != nil {
		return log, nil, err
	}
	return auditLog{
		sendMarked: func(ctx context.Context, marker string) error { return sendMarked(ctx, client, p.Namespace, marker) },
		find:       lines.find,
		timeout:    p.AuditWait,
	}, lines.close, nil
}

// sendMarked sends a request directly to the API server. It does not matter whether it is allowed.
func sendMarked(ctx context.Context, client kubernetes.Interface, namespace, marker string) error {
	result := client.CoreV1().RESTClient().Get().AbsPath(podsIn(namespace)).Param("fieldSelector", "metadata.name="+marker).Do(ctx)
	var code int
	result.StatusCode(&code)
	if code != 0 {
		return nil
	}
	return fmt.Errorf("the cluster of the kubeconfig cannot be reached: %w", result.Error())
}
