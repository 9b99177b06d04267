package deputy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/internal/usage"
)

// openAuditLog opens the audit log of a cluster that runs, from its present end on.
func (p *Proxy) openAuditLog() (auditLog, error) {
	cluster, err := existing.Open(p.Kubeconfig, p.Context, "")
	if err != nil {
		return auditLog{}, &usage.Error{Problem: "--kubeconfig " + err.Error()}
	}
	info, err := os.Stat(p.AuditLog)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", p.AuditLog)
	}
	if err != nil {
		return auditLog{}, &usage.Error{Problem: "--audit-log: " + err.Error()}
	}
	client, err := kubernetes.NewForConfig(cluster.Admin())
	from := info.Size()
	return auditLog{
		sendMarked: func(ctx context.Context, marker string) error { return sendMarked(ctx, client, p.Namespace, marker) },
		find:       func(texts ...string) ([]json.RawMessage, error) { return findLines(p.AuditLog, from, texts) },
		// An API server that writes in batches does so every 30 s at the latest.
		timeout: 35 * time.Second,
	}, err
}

// findLines returns the whole lines of a file with one of the texts, from an offset on, or all if it has become shorter.
func findLines(path string, from int64, texts []string) (out []json.RawMessage, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.Size() >= from {
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			return nil, err
		}
	}
	data, err := io.ReadAll(f)
	for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
		if slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(line, []byte(text)) }) {
			out = append(out, bytes.TrimSpace(line))
		}
	}
	return out, err
}

// sendMarked sends a request past the proxy. Whether it is allowed does not matter.
func sendMarked(ctx context.Context, client kubernetes.Interface, namespace, marker string) error {
	result := client.CoreV1().RESTClient().Get().AbsPath(podsIn(namespace)).Param("fieldSelector", "metadata.name="+marker).Do(ctx)
	var code int
	result.StatusCode(&code)
	if code != 0 {
		return nil
	}
	return fmt.Errorf("the cluster of the kubeconfig cannot be reached: %w", result.Error())
}
