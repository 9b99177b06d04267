package kind

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	kindlog "sigs.k8s.io/kind/pkg/log"
)

// Nodes are the names of the cluster's nodes, the control plane first.
func (c *Cluster) Nodes() []string {
	names := []string{c.controlPlane()}
	for i := range c.opts.Workers {
		suffix := ""
		if i > 0 {
			suffix = fmt.Sprint(i + 1)
		}
		names = append(names, c.name+"-worker"+suffix)
	}
	return names
}

// execNode runs a command on a node, with input if there is any.
func execNode(ctx context.Context, node string, input io.Reader, args ...string) ([]byte, error) {
	command := []string{"exec", "--privileged"}
	if input != nil {
		command = append(command, "--interactive")
	}
	out, err := dockerBytes(ctx, input, append(append(command, node), args...)...)
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", args[0], node, err)
	}
	return out, nil
}

// readNode reads a file of the control-plane node.
func (c *Cluster) readNode(ctx context.Context, path string) ([]byte, error) {
	return execNode(ctx, c.controlPlane(), nil, "cat", path)
}

// LoadImage imports an archive, as docker save writes it, into containerd of every node.
func (c *Cluster) LoadImage(ctx context.Context, archive []byte) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range c.Nodes() {
		group.Go(func() error {
			_, err := execNode(ctx, node, bytes.NewReader(archive), "ctr", "--namespace", "k8s.io", "images", "import", "--local", "--digests", "-")
			return err
		})
	}
	return group.Wait()
}

// logTimeout is how long a node may take to show its log.
const logTimeout = 10 * time.Second

// failureLog shows why a cluster did not start, as far as it can be seen: the end of the API server's log, or of the
// kubelet's if there is none, and of what kind said.
func (c *Cluster) failureLog(logger *lineLogger) string {
	const lines = 20
	ctx, cancel := context.WithTimeout(context.Background(), logTimeout)
	defer cancel()
	var b strings.Builder
	for _, source := range [][]string{
		{"sh", "-c", "cat $(ls -t /var/log/pods/kube-system_kube-apiserver-*/kube-apiserver/*.log | head -n 1) | tail -n " + fmt.Sprint(lines)},
		{"journalctl", "--no-pager", "--lines", fmt.Sprint(lines), "--unit", "kubelet.service"},
	} {
		out, err := execNode(ctx, c.controlPlane(), nil, source...)
		if err == nil && len(bytes.TrimSpace(out)) > 0 {
			fmt.Fprintf(&b, "\n%s\n", bytes.TrimSpace(out))
			break
		}
	}
	if logger != nil {
		b.WriteString(logger.tail(lines))
	}
	return b.String()
}

// lineLogger keeps what kind says, to be shown if it fails.
type lineLogger struct {
	mu    sync.Mutex
	lines []string
}

func (l *lineLogger) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.TrimRight(text, "\n"))
}

func (l *lineLogger) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return "\n" + strings.Join(l.lines[max(0, len(l.lines)-n):], "\n")
}

// Warn, Warnf, Error, Errorf and V implement kind's log.Logger.
func (l *lineLogger) Warn(message string)               { l.add(message) }
func (l *lineLogger) Warnf(format string, args ...any)  { l.add(fmt.Sprintf(format, args...)) }
func (l *lineLogger) Error(message string)              { l.add(message) }
func (l *lineLogger) Errorf(format string, args ...any) { l.add(fmt.Sprintf(format, args...)) }

// V implements kind's log.Logger: its information is not kept.
func (l *lineLogger) V(kindlog.Level) kindlog.InfoLogger { return kindlog.NoopInfoLogger{} }
