// Package kind provides clusters with real nodes, through kind's own library.
// Every cluster has one control-plane node and as many workers as are asked for.
//
// The API server's files are in a folder of this machine that the control-plane
// node and the static pod mount, so that they can be changed while it runs, and
// its audit log is read from another one. Both need an engine on this machine.
package kind

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/clusters/local"
)

const (
	// NamePrefix begins the name of every cluster of authzconf: what kind's label
	// io.x-k8s.kind.cluster is looked through for by Leftovers.
	NamePrefix = "authzconf-"
	// ImageRepository is where node images come from unless one is named.
	ImageRepository = "kindest/node"

	// readyTimeout is how long a cluster may take.
	readyTimeout = 5 * time.Minute
)

// Options describe a cluster.
type Options struct {
	// Name follows NamePrefix in the cluster's name, before a random part.
	Name string
	// Image is the node image; it decides the version. Empty is kindest/node:v<Version>.
	Image string
	// Version is the version of Kubernetes that the image has, without a v.
	Version string
	// Network is what FindNetwork has found, if it was asked before.
	Network *Network
	// Workers is the number of nodes beside the control plane.
	Workers int
	// Options are those of kube-apiserver, as of a local one; what they say of programs, etcd and ports has no effect.
	// Arguments are of the form --name=value. In them and in AuthorizationConfig local.DirPlaceholder stands for the
	// folder of Files as the API server sees it. Keep leaves the cluster running after Stop, with the plain authorizer
	// chain of Node and RBAC: what else was in it ends with this process.
	local.Options
}

// complete fills in defaults and refuses what cannot be.
func (o Options) complete() (Options, error) {
	o.FeatureGates, o.Files, o.KubeAPIServerArgs = maps.Clone(o.FeatureGates), maps.Clone(o.Files), slices.Clone(o.KubeAPIServerArgs)
	if o.Image == "" {
		if o.Version == "" {
			return o, &local.UsageError{Problem: "no node image and no version is named"}
		}
		o.Image = ImageRepository + ":v" + o.Version
	}
	if o.Workers < 0 {
		return o, &local.UsageError{Problem: fmt.Sprintf("%d workers: a cluster has none or more", o.Workers)}
	}
	for _, a := range o.KubeAPIServerArgs {
		if name, _, found := strings.Cut(a, "="); !found || !strings.HasPrefix(name, "--") {
			return o, &local.UsageError{Problem: fmt.Sprintf("the argument %q of kube-apiserver is not of the form --name=value", a)}
		}
	}
	return o, nil
}

// Places on the control-plane node, the same in the static pod.
const (
	nodeConfigDir = "/etc/authzconf"
	nodeAuditDir  = "/var/log/authzconf"

	authorizationFile = "authorization.yaml"
	auditPolicyFile   = "audit-policy.yaml"
	auditFile         = "audit.jsonl"
)

// arg is an argument of kube-apiserver.
type arg struct{ name, value string }

func (a arg) String() string { return "--" + a.name + "=" + a.value }

// args are what kube-apiserver has besides kubeadm's own arguments. Those that
// are set here twice have the later value.
func (o Options) args() []arg {
	// As on the local control plane; kubeadm leaves it out.
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
			// One file for the whole run: who reads along would lose what is rotated away.
			arg{"audit-log-maxsize", "100000"})
	}
	for _, a := range o.KubeAPIServerArgs {
		name, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		args = append(args, arg{name, expand(value)})
	}
	return args
}

// files are the contents of the folder that the API server reads.
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

func expand(text string) string {
	return strings.ReplaceAll(text, local.DirPlaceholder, nodeConfigDir)
}

// config is kind's configuration of a cluster whose API server reads configDir
// and writes its audit log to auditDir, both of this machine.
func (o Options) config(name, configDir, auditDir string) (*v1alpha4.Cluster, error) {
	merge, json6902, err := o.patches()
	if err != nil {
		return nil, err
	}
	c := &v1alpha4.Cluster{
		TypeMeta: v1alpha4.TypeMeta{Kind: "Cluster", APIVersion: "kind.x-k8s.io/v1alpha4"},
		Name:     name,
		Networking: v1alpha4.Networking{
			APIServerAddress: "127.0.0.1",
			IPFamily:         v1alpha4.IPv4Family,
		},
		KubeadmConfigPatches:         merge,
		KubeadmConfigPatchesJSON6902: json6902,
		Nodes: []v1alpha4.Node{{
			Role:  v1alpha4.ControlPlaneRole,
			Image: o.Image,
			ExtraMounts: []v1alpha4.Mount{
				{HostPath: configDir, ContainerPath: nodeConfigDir, Readonly: true},
				{HostPath: auditDir, ContainerPath: nodeAuditDir},
			},
		}},
	}
	for range o.Workers {
		c.Nodes = append(c.Nodes, v1alpha4.Node{Role: v1alpha4.WorkerRole, Image: o.Image})
	}
	return c, nil
}

// patches change kubeadm's configuration. Which of its versions is used follows from the version of Kubernetes
// (kind: v1beta4 since 1.36); a patch for the other one matches nothing.
func (o Options) patches() (merge []string, json6902 []v1alpha4.PatchJSON6902, err error) {
	// Volumes of a static pod, as kubeadm writes them (HostPathMount).
	volumes := []map[string]any{
		{"name": "authzconf-config", "hostPath": nodeConfigDir, "mountPath": nodeConfigDir, "readOnly": true, "pathType": "Directory"},
		{"name": "authzconf-audit", "hostPath": nodeAuditDir, "mountPath": nodeAuditDir, "readOnly": false, "pathType": "Directory"},
	}
	byName := map[string]string{}
	appended := []map[string]any{}
	for _, a := range o.args() {
		byName[a.name] = a.value
		appended = append(appended, map[string]any{
			"op": "add", "path": "/apiServer/extraArgs/-", "value": map[string]string{"name": a.name, "value": a.value},
		})
	}
	for _, p := range []struct {
		version   string
		apiServer map[string]any
	}{
		{"v1beta3", map[string]any{"extraArgs": byName, "extraVolumes": volumes}},
		{"v1beta4", map[string]any{"extraVolumes": volumes}},
	} {
		patch, err := yaml.Marshal(map[string]any{
			"apiVersion": "kubeadm.k8s.io/" + p.version, "kind": "ClusterConfiguration", "apiServer": p.apiServer,
		})
		if err != nil {
			return nil, nil, fmt.Errorf("a patch of kubeadm's configuration: %w", err)
		}
		merge = append(merge, string(patch))
	}
	raw, err := json.Marshal(appended)
	if err != nil {
		return nil, nil, err
	}
	return merge, []v1alpha4.PatchJSON6902{{Group: "kubeadm.k8s.io", Version: "v1beta4", Kind: "ClusterConfiguration", Patch: string(raw)}}, nil
}
