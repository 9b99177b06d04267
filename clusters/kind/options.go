// Package kind provides clusters with real nodes, through kind's own library.
// Every cluster has as many control-plane nodes and workers as are asked for.
//
// The API servers' files are in a folder of this machine that the control-plane nodes and the static pods mount, so that
// they can be changed while these run, and their audit logs are read from others. Both need an engine on this machine.
package kind

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"text/template"
	"time"

	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/internal/usage"
)

const (
	// NamePrefix is the beginning of the name of every cluster of authzconf. Leftovers finds them by it in kind's label
	// io.x-k8s.kind.cluster.
	NamePrefix = "authzconf-"
	// ImageRepository is the repository of node images unless one is named. BuiltRepository is the name of those that
	// ci/kind-node/build makes where no registry can be reached.
	ImageRepository = "kindest/node"
	BuiltRepository = "authzconf/kind-node"

	readyTimeout = 5 * time.Minute
)

// Options describe a cluster.
type Options struct {
	// Name follows NamePrefix in the cluster's name, and a random part follows it.
	Name string
	// Image is the node image, which decides the version. If it is empty, it is kindest/node:v<Version>, or the one
	// that ci/kind-node/build has made if the engine has only that.
	Image   string
	Version string           // the version of Kubernetes that the image has, without a v
	Network clusters.Network // the result of FindNetwork, if it was called before
	// ControlPlanes are the nodes of the control plane in addition to the first, whose API server has Version. Requests
	// are sent to the first. kind's load balancer is in front of all of them.
	ControlPlanes []Worker
	// Workers are the nodes in addition to the control plane.
	Workers []Worker
	// Options are the options of kube-apiserver, as for a local one. Those about programs, etcd and ports have no
	// effect. Arguments have the form --name=value. In them and in AuthorizationConfig, local.DirPlaceholder stands for
	// the folder of Files as the API server sees it. Keep leaves the cluster running after Stop, with the plain
	// authorizer chain of Node and RBAC, because everything else in the chain ends with this process.
	local.Options
}

// Worker is a node in addition to the first. It may have another version.
type Worker struct {
	// Version is the version, without a v, of its kubelet or, on a node of the control plane, of its API server. If it
	// is empty, it is that of the first node, or for a worker that of the oldest API server.
	Version string
	// Image is its node image. If it is empty and a version is named, it is chosen as for Options.Image. Otherwise it
	// is that of the first API server, or for a worker that of the oldest.
	Image string
}

func (o Options) complete() (Options, error) {
	o.FeatureGates, o.Files, o.KubeAPIServerArgs = maps.Clone(o.FeatureGates), maps.Clone(o.Files), slices.Clone(o.KubeAPIServerArgs)
	if o.Image == "" {
		if o.Version == "" {
			return o, &usage.Error{Problem: "no node image and no version is named"}
		}
		o.Image = imageOf(o.Version)
	}
	o.Workers, o.ControlPlanes = slices.Clone(o.Workers), slices.Clone(o.ControlPlanes)
	for i, node := range o.ControlPlanes {
		o.ControlPlanes[i].Image = cmp.Or(node.Image, o.imageOf(node.Version, o.Image))
	}
	for i, node := range o.Workers {
		o.Workers[i].Image = cmp.Or(node.Image, o.imageOf(node.Version, o.baseImage()))
	}
	for _, a := range o.KubeAPIServerArgs {
		if name, _, found := strings.Cut(a, "="); !found || !strings.HasPrefix(name, "--") {
			return o, &usage.Error{Problem: fmt.Sprintf("the argument %q of kube-apiserver is not of the form --name=value", a)}
		}
	}
	return o, nil
}

// imageOf returns the node image of a node of a version, or another one if no version is named.
func (o Options) imageOf(version, unnamed string) string {
	switch version {
	case "":
		return unnamed
	case o.Version:
		return o.Image
	}
	return imageOf(version)
}

// imageOf returns the name of the node image of a version, unless the engine has only our own.
func imageOf(version string) string { return ImageRepository + ":v" + version }

// These are places on the control-plane node, which are the same in the static pod.
const (
	nodeConfigDir = "/etc/authzconf"
	nodeAuditDir  = "/var/log/authzconf"

	authorizationFile = "authorization.yaml"
	auditPolicyFile   = "audit-policy.yaml"
	auditFile         = "audit.jsonl"
)

type arg struct{ name, value string }

func (a arg) String() string { return "--" + a.name + "=" + a.value }

// args returns the arguments of kube-apiserver in addition to kubeadm's own. If one is set twice here, the later value
// is used.
func (o Options) args() []arg {
	// It is set on a local control plane; kubeadm leaves it out.
	args := []arg{{"requestheader-uid-headers", "X-Remote-Uid"}}
	if o.EmulatedVersion != "" {
		args = append(args, arg{"emulated-version", o.EmulatedVersion})
	}
	if len(o.FeatureGates) > 0 {
		args = append(args, arg{"feature-gates", local.GatesValue(o.FeatureGates)})
	}
	if o.AuthorizationConfig != nil {
		args = append(args, arg{"authorization-config", nodeConfigDir + "/" + authorizationFile})
	}
	if o.AuditPolicy != nil {
		args = append(args,
			arg{"audit-policy-file", nodeConfigDir + "/" + auditPolicyFile},
			arg{"audit-log-path", nodeAuditDir + "/" + auditFile},
			arg{"audit-log-mode", "blocking"},
			arg{"audit-log-format", "json"},
			// The whole run uses one file, because a reader would lose what is rotated away.
			arg{"audit-log-maxsize", "100000"})
	}
	for _, a := range o.KubeAPIServerArgs {
		name, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		args = append(args, arg{name, expand(value)})
	}
	return args
}

func (o Options) files() map[string][]byte {
	files := map[string][]byte{}
	maps.Copy(files, o.Files)
	if o.AuthorizationConfig != nil {
		files[authorizationFile] = []byte(expand(string(o.AuthorizationConfig)))
	}
	if o.AuditPolicy != nil {
		files[auditPolicyFile] = o.AuditPolicy
	}
	return files
}

func expand(text string) string { return strings.ReplaceAll(text, local.DirPlaceholder, nodeConfigDir) }

//go:embed config.yaml.tmpl
var configTemplate string

// config returns kind's configuration of a cluster whose API servers have these folders.
func (o Options) config(name string, servers []serverFolders) (*v1alpha4.Cluster, error) {
	byName, added := map[string]string{}, []map[string]any{}
	for _, a := range o.args() {
		byName[a.name] = a.value
		added = append(added, map[string]any{
			"op": "add", "path": "/apiServer/extraArgs/-", "value": map[string]string{"name": a.name, "value": a.value},
		})
	}
	raw, err := json.Marshal(added)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New("config").Parse(configTemplate)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, map[string]any{
		"Name": name, "Image": o.baseImage(), "Workers": o.Workers, "Servers": servers, "ByName": byName, "Added": string(raw),
	})
	if err != nil {
		return nil, err
	}
	c := &v1alpha4.Cluster{}
	return c, yaml.UnmarshalStrict(text.Bytes(), c)
}

const (
	statePrefix = "kind-"
	lockFile    = "lock"
	configDir   = "config"
	auditDir    = "audit"
)

// state is the folder of one cluster on this machine. It is locked while its run lives, which shows others that it is
// in use.
type state struct {
	path string
	lock *local.FileLock
}

func statePath(name string) (string, error) {
	root, err := local.StateRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, statePrefix+name), nil
}

// longestNode is the longest name of a node, because Kubernetes uses it as the value of a label and the machine as the
// name of a host. longestSuffix is the longest end that kind adds to the name of a cluster.
const (
	longestNode   = 63
	longestSuffix = "-external-load-balancer"
)

// nameCluster returns a unique name for a cluster, made from the requested one and short enough that nodes can be named
// after it.
func nameCluster(requestedName string) string {
	unique := "-" + utilrand.String(6)
	room := longestNode - len(NamePrefix+unique+longestSuffix)
	return NamePrefix + strings.Trim(strings.TrimRight(requestedName[:min(room, len(requestedName))], "-")+unique, "-")
}

func newState(requestedName string) (name string, s *state, err error) {
	name = nameCluster(requestedName)
	path, err := statePath(name)
	if err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", nil, &usage.Error{
			Problem: fmt.Sprintf("cannot make the folder of a cluster: %v", err),
			Hint:    "set " + local.StateVariable + " to a folder that can be written",
			Err:     err,
		}
	}
	lock, err := local.TryLock(filepath.Join(path, lockFile))
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(path))
	}
	return name, &state{path: path, lock: lock}, nil
}

func inUse(name string) bool {
	path, err := statePath(name)
	if err != nil {
		return false
	}
	lock, err := local.TryLock(filepath.Join(path, lockFile))
	if err != nil {
		return errors.Is(err, local.ErrLocked)
	}
	lock.Unlock()
	return false
}

func removeState(name string) error {
	path, err := statePath(name)
	if err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// serverFolders are the folders of an API server on this machine: Config has what it reads, and Audit its audit log.
type serverFolders struct{ Config, Audit string }

// makeFolders makes the folders of some API servers.
func (s *state) makeFolders(servers int) (all []serverFolders, err error) {
	for i := range servers {
		f := serverFolders{Config: filepath.Join(s.path, configDir, fmt.Sprint(i)), Audit: filepath.Join(s.path, auditDir, fmt.Sprint(i))}
		if err := errors.Join(os.MkdirAll(f.Config, 0o700), os.MkdirAll(f.Audit, 0o700)); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// write writes files, which only this user can read, into the folder of an API server. Each is written in one step, so
// that nobody reads an incomplete one.
func (f serverFolders) write(files map[string][]byte) error {
	for name, data := range files {
		if err := local.WriteFile(filepath.Join(f.Config, name), data); err != nil {
			return err
		}
	}
	return nil
}

func (s *state) leave(keep bool) error {
	defer s.lock.Unlock()
	if keep {
		return nil
	}
	return os.RemoveAll(s.path)
}

// tailPoll is the pause between two looks at a file that has not grown.
const tailPoll = time.Millisecond

type tail struct {
	file *os.File
	sink io.Writer
	quit chan struct{}
	done chan struct{}
	err  atomic.Pointer[error]
}

// follow creates an empty file and follows it. So the file belongs to this user, whoever writes to it.
func follow(path string, sink io.Writer) (*tail, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	t := &tail{file: file, sink: sink, quit: make(chan struct{}), done: make(chan struct{})}
	go t.run()
	return t, nil
}

func (t *tail) run() {
	defer close(t.done)
	buffer := make([]byte, 64<<10)
	for {
		n, err := t.file.Read(buffer)
		if n > 0 {
			if _, err := t.sink.Write(buffer[:n]); err != nil {
				t.fail(fmt.Errorf("audit events were lost: the audit sink failed: %w", err))
				return
			}
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			t.fail(fmt.Errorf("audit events were lost: %w", err))
			return
		}
		select {
		case <-t.quit:
			return
		case <-time.After(tailPoll):
		}
	}
}

func (t *tail) fail(err error) { t.err.Store(&err) }

func (t *tail) failure() error { return ptr.Deref(t.err.Load(), nil) }

func (t *tail) stop() error {
	close(t.quit)
	<-t.done
	return errors.Join(t.failure(), t.file.Close())
}
