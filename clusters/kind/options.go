// Package kind provides clusters with real nodes, through kind's own library.
// Every cluster has one control-plane node and as many workers as are asked for.
//
// The API server's files are in a folder of this machine that the control-plane
// node and the static pod mount, so that they can be changed while it runs, and
// its audit log is read from another one. Both need an engine on this machine.
package kind

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
)

const (
	// NamePrefix begins the name of every cluster of authzconf: what kind's label
	// io.x-k8s.kind.cluster is looked through for by Leftovers.
	NamePrefix = "authzconf-"
	// ImageRepository is where node images come from unless one is named.
	ImageRepository = "kindest/node"

	defaultReadyTimeout = 5 * time.Minute
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
	// EmulatedVersion and FeatureGates are for kube-apiserver alone.
	EmulatedVersion string
	FeatureGates    map[string]bool
	// AuthorizationConfig is an AuthorizationConfiguration in YAML. In it and in Args local.DirPlaceholder stands
	// for the folder of Files as the API server sees it.
	AuthorizationConfig []byte
	// AuditPolicy is an audit Policy in YAML, AuditSink receives the events, one
	// JSON document a line, written before the request is answered.
	AuditPolicy []byte
	AuditSink   io.Writer
	// Files are put into the folder of the API server's files, by relative name.
	Files map[string][]byte
	// Args are further arguments of kube-apiserver, --name=value.
	Args []string
	// Keep leaves the cluster running after Stop, with the plain authorizer chain
	// of Node and RBAC: what else was in it ends with this process.
	Keep bool
	// ReadyTimeout is how long the cluster may take; 0 is 5 min.
	ReadyTimeout time.Duration
}

// complete fills in defaults and refuses what cannot be.
func (o Options) complete() (Options, error) {
	o.FeatureGates, o.Files, o.Args = maps.Clone(o.FeatureGates), maps.Clone(o.Files), slices.Clone(o.Args)
	if o.Image == "" {
		if o.Version == "" {
			return o, &local.UsageError{Problem: "no node image and no version is named"}
		}
		o.Image = ImageRepository + ":v" + o.Version
	}
	if o.Workers < 0 {
		return o, &local.UsageError{Problem: fmt.Sprintf("%d workers: a cluster has none or more", o.Workers)}
	}
	for _, a := range o.Args {
		if name, _, found := strings.Cut(a, "="); !found || !strings.HasPrefix(name, "--") {
			return o, &local.UsageError{Problem: fmt.Sprintf("the argument %q of kube-apiserver is not of the form --name=value", a)}
		}
	}
	if o.ReadyTimeout == 0 {
		o.ReadyTimeout = defaultReadyTimeout
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
	for _, a := range o.Args {
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
