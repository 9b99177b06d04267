// Package kind provides clusters with real nodes, through kind's own library.
// Every cluster has one control-plane node and as many workers as are asked for.
//
// The API server's files are in a folder of this machine that the control-plane
// node and the static pod mount, so that they can be changed while it runs, and
// its audit log is read from another one. Both need an engine on this machine.
package kind

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
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

//go:embed config.yaml.tmpl
var configTemplate string

// config is kind's configuration of a cluster whose API server reads configDir
// and writes its audit log to auditDir, both of this machine.
func (o Options) config(name, configDir, auditDir string) (*v1alpha4.Cluster, error) {
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
	if err := parsed.Execute(&text, map[string]any{
		"Name": name, "Image": o.Image, "Workers": o.Workers, "Config": configDir, "Audit": auditDir, "ByName": byName, "Added": string(raw),
	}); err != nil {
		return nil, err
	}
	c := &v1alpha4.Cluster{}
	return c, yaml.UnmarshalStrict(text.Bytes(), c)
}
