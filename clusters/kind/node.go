package kind

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kindlog "sigs.k8s.io/kind/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/internal/seq"
)

// Nodes are the names of the cluster's nodes, the control plane first.
func (c *Cluster) Nodes() []string {
	names := c.controlPlanes()
	for i := range c.opts.Workers {
		names = append(names, c.worker(i))
	}
	return names
}

// worker returns the name of a worker, as kind names them.
func (c *Cluster) worker(i int) string {
	name := c.name + "-worker"
	if i > 0 {
		name += fmt.Sprint(i + 1)
	}
	return name
}

func execNode(ctx context.Context, node string, input io.Reader, args ...string) ([]byte, error) {
	command := []string{"exec", "--privileged"}
	if input != nil {
		command = append(command, "--interactive")
	}
	out, err := runEngineBytes(ctx, input, append(append(command, node), args...)...)
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", args[0], node, err)
	}
	return out, nil
}

func (c *Cluster) readNode(ctx context.Context, path string) ([]byte, error) {
	return execNode(ctx, c.controlPlane(), nil, "cat", path)
}

// ReadCommand implements clusters.CommandReader.
func (c *Cluster) ReadCommand(ctx context.Context) ([]string, error) {
	return readCommand(ctx, c.controlPlane())
}

func readCommand(ctx context.Context, node string) ([]string, error) {
	raw, err := execNode(ctx, node, nil, "sh", "-c", "cat /proc/$(pgrep -o -x kube-apiserver)/cmdline")
	if err != nil {
		return nil, err
	}
	return local.SplitCommand(raw), nil
}

// importImages imports an archive into containerd of some nodes.
func importImages(ctx context.Context, nodes []string, archive []byte) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range nodes {
		group.Go(func() error {
			_, err := execNode(
				ctx,
				node,
				bytes.NewReader(archive),
				"ctr",
				"--namespace",
				"k8s.io",
				"images",
				"import",
				"--local",
				"--digests",
				"-",
			)
			return err
		})
	}
	return group.Wait()
}

// LoadImage imports an archive, as docker save writes it, into containerd of every node.
func (c *Cluster) LoadImage(ctx context.Context, archive []byte) error {
	return importImages(ctx, c.Nodes(), archive)
}

const logTimeout = 10 * time.Second

// failureLog returns why a cluster did not start, as far as it can be seen: the end of the API server's log (or of the
// kubelet's if there is none), and the end of what kind printed.
func (c *Cluster) failureLog(logger *lineLogger) string {
	const lines = 20
	ctx, cancel := context.WithTimeout(context.Background(), logTimeout)
	defer cancel()
	var b strings.Builder
	for _, source := range [][]string{
		{"sh", "-c", "cat $(ls -t /var/log/pods/kube-system_kube-apiserver-*/kube-apiserver/*.log | head -n 1) | tail -n " + fmt.Sprint(lines)},
		{"journalctl", "--no-pager", "--lines", fmt.Sprint(lines), "--unit", "kubelet.service"},
	} {
		if out, err := execNode(ctx, c.controlPlane(), nil, source...); err == nil && len(bytes.TrimSpace(out)) > 0 {
			fmt.Fprintf(&b, "\n%s\n", bytes.TrimSpace(out))
			break
		}
	}
	if logger != nil {
		b.WriteString(logger.tail(lines))
	}
	return b.String()
}

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

func (l *lineLogger) Warn(message string)               { l.add(message) }
func (l *lineLogger) Warnf(format string, args ...any)  { l.add(fmt.Sprintf(format, args...)) }
func (l *lineLogger) Error(message string)              { l.add(message) }
func (l *lineLogger) Errorf(format string, args ...any) { l.add(fmt.Sprintf(format, args...)) }

func (l *lineLogger) V(kindlog.Level) kindlog.InfoLogger { return kindlog.NoopInfoLogger{} }

const (
	manifestPath = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	// generation is an argument-free mark in the manifest, for the kubelet to restart the pod even if nothing else
	// differs.
	generation = "authzconf.dev/generation"
)

// RestartAPIServer changes the options and writes the manifest of the static pod again. It returns when the kubelet has
// replaced the API server and the new one is ready. Several API servers are replaced one after the other, except those
// that are members. With another Image all of them get that image's program; etcd, kubelets and everything else stay.
func (c *Cluster) RestartAPIServer(ctx context.Context, change func(*Options)) error {
	c.life.Lock()
	defer c.life.Unlock()
	o := c.opts
	change(&o)
	o, took, err := c.restart(ctx, c.own(), o)
	if err != nil {
		return err
	}
	for i := range o.ControlPlanes {
		o.ControlPlanes[i] = Worker{Version: o.Version, Image: o.Image}
	}
	c.opts, c.readyIn = o, took
	return nil
}

// restart replaces the API servers of some nodes by those that o describes, one after the other. It returns the options
// with their defaults, and for how long the first API server has run. Before that, the previous one may have answered,
// because the image has to be brought first and the kubelet looks only now and then.
func (c *Cluster) restart(ctx context.Context, nodes []string, o Options) (_ Options, took time.Duration, err error) {
	if o, err = o.complete(); err != nil {
		return o, 0, err
	}
	o.Image = findImage(ctx, o.Image)
	if err := c.writeFiles(nodes, o.files()); err != nil {
		return o, 0, err
	}
	if err := c.bringAPIServer(ctx, nodes, o.Image); err != nil {
		return o, 0, err
	}
	for _, node := range nodes {
		if err := c.replaceServer(ctx, node, o); err != nil {
			return o, 0, err
		}
	}
	began, err := c.startTime(ctx, nodes[0])
	if err != nil {
		return o, 0, err
	}
	return o, time.Since(time.UnixMilli(int64(1000 * began))), nil
}

// killTimeout is how long it may take to stop a kubelet and to kill a process.
const killTimeout = time.Minute

// KillAPIServer implements clusters.Killer.
func (c *Cluster) KillAPIServer() error { return c.kill(c.own()) }

// kill kills the API servers of some nodes. It stops their kubelets, which would start them again at once, until the
// next API servers replace them.
func (c *Cluster) kill(nodes []string) error {
	ctx, cancel := context.WithTimeout(c.ctx, killTimeout)
	defer cancel()
	for _, node := range nodes {
		if _, err := execNode(ctx, node, nil, "sh", "-c", "systemctl stop kubelet && pkill -KILL -x kube-apiserver"); err != nil {
			return fmt.Errorf("killing the API server: %w", err)
		}
	}
	return nil
}

func (c *Cluster) rewriteManifest(ctx context.Context, node string, o Options, image, mark string) error {
	raw, err := execNode(ctx, node, nil, "cat", manifestPath)
	if err != nil {
		return err
	}
	raw, err = editManifest(raw, c.manifestOf(node).args, o.args(), image, mark)
	if err != nil {
		return err
	}
	// The kubelet regards every file in the folder as a pod, except those that begin with a dot. If the API server was
	// killed, the kubelet has been stopped, and is started again by this.
	const script = `cat >/etc/kubernetes/manifests/.authzconf && mv /etc/kubernetes/manifests/.authzconf ` + manifestPath + ` && systemctl start kubelet`
	if _, err = execNode(ctx, node, bytes.NewReader(raw), "sh", "-c", script); err != nil {
		return err
	}
	c.manifests[node] = writtenManifest{o.args(), o.Image}
	return nil
}

// editManifest removes the arguments old from the manifest of a static pod, and adds the arguments newArgs.
func editManifest(raw []byte, old, newArgs []arg, image, mark string) ([]byte, error) {
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(raw, &pod); err != nil {
		return nil, fmt.Errorf("the manifest of kube-apiserver: %w", err)
	}
	if len(pod.Spec.Containers) != 1 {
		return nil, errors.New("the manifest of kube-apiserver does not have exactly one container")
	}
	container := &pod.Spec.Containers[0]
	container.Command = slices.DeleteFunc(container.Command, func(line string) bool {
		return slices.ContainsFunc(old, func(a arg) bool { return line == a.String() })
	})
	container.Command = append(container.Command, seq.Map(newArgs, arg.String)...)
	if image != "" {
		container.Image = image
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, generation, mark)
	return yaml.Marshal(pod)
}

// awaitReplaced returns when an API server of a node that started later than before is ready.
func (c *Cluster) awaitReplaced(ctx context.Context, node string, before float64) error {
	err := c.await(ctx, "did not come back", func(ctx context.Context) error {
		now, err := c.startTime(ctx, node)
		if err == nil && now <= before {
			err = errors.New("the kubelet has not replaced it")
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.waitReady(ctx, node)
}

// awaitMirror returns when the pod that shows the API server of a node is that of the manifest with a mark. The kubelet
// replaces this pod after the API server is ready; until then its node seems to have none.
func (c *Cluster) awaitMirror(ctx context.Context, node, mark string) error {
	return c.await(ctx, "has no pod that shows it", func(ctx context.Context) error {
		raw, err := c.get(ctx, node, "/api/v1/namespaces/kube-system/pods/kube-apiserver-"+node)
		if err != nil {
			return err
		}
		var pod corev1.Pod
		if err := json.Unmarshal(raw, &pod); err != nil {
			return err
		}
		if pod.Annotations[generation] != mark {
			return fmt.Errorf("the pod %s is the one of before", pod.Name)
		}
		return nil
	})
}

var startTimeLine = regexp.MustCompile(`(?m)^process_start_time_seconds (\S+)$`)

// startTime returns when the API server's process began, in seconds since 1970, according to its metrics.
func (c *Cluster) startTime(ctx context.Context, node string) (float64, error) {
	body, err := c.get(ctx, node, "/metrics")
	if err != nil {
		return 0, err
	}
	m := startTimeLine.FindSubmatch(body)
	if m == nil {
		return 0, errors.New("/metrics has no process_start_time_seconds")
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// nameAPIServer returns the name of the image of the kube-apiserver in a node image.
func nameAPIServer(ctx context.Context, nodeImage string) (string, error) {
	version, err := ImageVersion(ctx, nodeImage)
	return "registry.k8s.io/kube-apiserver:v" + version, err
}

// bringAPIServer brings the kube-apiserver of one node image to nodes that run that of another.
func (c *Cluster) bringAPIServer(ctx context.Context, nodes []string, nodeImage string) error {
	nodes = seq.Filter(nodes, func(node string) bool { return c.manifestOf(node).image != nodeImage })
	if len(nodes) == 0 {
		return nil
	}
	name, err := nameAPIServer(ctx, nodeImage)
	if err != nil {
		return err
	}
	// A node image has the images of its version in the store of containerd, which has to run to export one.
	script := `containerd >/dev/null 2>&1 & until ctr version >/dev/null 2>&1; do sleep 0.1; done; exec ctr --namespace k8s.io images export --local - ` + name
	archive, err := runEngineBytes(
		ctx,
		nil,
		"run",
		"--rm",
		"--privileged",
		"--network",
		"none",
		"--entrypoint",
		"sh",
		nodeImage,
		"-c",
		script,
	)
	if err != nil {
		return fmt.Errorf("taking %s out of %s: %w", name, nodeImage, err)
	}
	if err := importImages(ctx, nodes, archive); err != nil {
		return fmt.Errorf("bringing %s: %w", name, err)
	}
	return nil
}

// ExportLogs has kind collect the logs of all nodes in a folder, which is there.
func (c *Cluster) ExportLogs(ctx context.Context, dest string) error {
	p, err := findProgram(ctx)
	if err != nil {
		return err
	}
	return p.provider().CollectLogs(c.name, dest)
}
