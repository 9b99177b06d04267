// Package gate plays the API-server vectors of KEP-5681 against a kube-apiserver that has the gate
// ConditionalAuthorization: its authorizers are webhooks that answer as the vectors say, and real requests are sent.
//
// No release of Kubernetes has the gate. The names of the gate, the plugin and the field are those of the KEP.
package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conditional/reference"
	"github.com/authzconf/authzconf/conditional/vectors"
	"github.com/authzconf/authzconf/conditional/wire"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/verdicts"
)

// Names of the KEP.
const (
	Gate         = "ConditionalAuthorization"
	Plugin       = "AuthorizationConditionsEnforcer"
	contextField = "conditionsEndpointKubeConfigContext"
)

// ErrUnknown is wrapped where an API server does not know the gate.
var ErrUnknown = errors.New("does not know the gate " + Gate)

// Options say what vectors are played on.
type Options struct {
	// Release and Binaries name the program; TEST_ASSET_KUBE_APISERVER has the last word.
	Release  local.Release
	Binaries *local.Binaries
	// Wire is the revision in which the webhooks speak.
	Wire *wire.Revision
}

// Play is what was seen of all vectors that can be played.
type Play struct {
	// Server is the program and its version.
	Server string `json:"server"`
	// Wire is the revision in which the webhooks spoke.
	Wire string `json:"wire"`
	Seen []Seen `json:"seen"`
}

// server is a running API server with the chain of the vectors.
type server struct {
	*target.Target
	hooks *target.Loopback
}

// Run plays vectors, those with the same configuration of the API server on one.
func Run(ctx context.Context, all []*vectors.Vector, o Options) (*Play, error) {
	out, of, length := &Play{Wire: o.Wire.Name}, map[kind][]*vectors.Vector{}, 1
	for _, v := range all {
		if Cannot(v, o.Wire) != "" {
			continue
		}
		k := kind{v.APIServer.Server.Gate, v.APIServer.Server.Plugin}
		of[k], length = append(of[k], v), max(length, len(v.APIServer.Chain), len(v.APIServer.Compound))
	}
	// The usual configuration comes first, and always: what does not start with another is held against that one.
	for _, k := range []kind{{"on", "on"}, {"on", "off"}, {"off", "on"}, {"off", "off"}} {
		if k != (kind{"on", "on"}) && of[k] == nil {
			continue
		}
		if err := out.on(ctx, k, length, of[k], o); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Spoken is the revision of the wire that an API server speaks: the first in which it asks for conditions to be evaluated.
func Spoken(ctx context.Context, o Options) (*wire.Revision, error) {
	conditions := []vectors.EvaluatedCondition{{Condition: vectors.Condition{ID: "example.com/probe", Effect: vectors.Allow, Type: "example.com/probe", Condition: "x"}, PerObject: []vectors.Truth{vectors.True}}}
	probe := &vectors.Vector{APIServer: &vectors.APIServer{
		Server: vectors.Server{Gate: "on", Plugin: "on"}, Request: vectors.Request{Verb: "create", APIVersion: "v1", Resource: "configmaps"}, Objects: 1,
		Chain: []vectors.Authorizer{{Name: "a0", FailureMode: vectors.FailDeny, Decision: vectors.Conditional, Conditions: conditions}},
		Want:  vectors.Want{Authorized: vectors.ConditionalAllow},
	}}
	all := wire.Revisions()
	for _, o.Wire = range slices.Backward(all) {
		p, err := Run(ctx, []*vectors.Vector{probe}, o)
		if err != nil {
			return nil, err
		}
		if len(names(p.Seen[0].Request.Events, evaluates)) > 0 {
			return o.Wire, nil
		}
	}
	return nil, errors.New("the API server evaluates the conditions of no revision of the wire: name one with --wire")
}

// kind is what an API server has to be started anew for.
type kind struct{ gate, plugin string }

// on plays vectors on an API server of a kind.
func (p *Play) on(ctx context.Context, k kind, length int, all []*vectors.Vector, o Options) (err error) {
	hooks := &webhooks{wire: o.Wire}
	s := &server{}
	if s.hooks, err = target.ServeLoopback(ctx, hooks.handler(), nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.hooks.Close()) }()
	if err := s.start(ctx, k, length, o); err != nil {
		if _, ended := errors.AsType[*local.ProcessError](err); !ended || p.Server == "" {
			return unknown(ctx, err, o)
		}
		for _, v := range all { // it has started with the usual configuration
			p.Seen = append(p.Seen, Seen{Vector: v.ID})
		}
		return nil
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	p.Server = cmp.Or(p.Server, "kube-apiserver "+s.Witness.GitVersion)
	playing := &player{server: s, said: hooks}
	if err := playing.register(ctx); err != nil {
		return err
	}
	for _, v := range all {
		seen, err := playing.play(ctx, v)
		if err == nil {
			err = s.ClusterErr()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", v.ID, err)
		}
		p.Seen = append(p.Seen, seen)
	}
	return nil
}

func (s *server) start(ctx context.Context, k kind, length int, o Options) (err error) {
	plain := &target.Plain{Files: map[string][]byte{}, Args: []string{"--enable-admission-plugins=" + Plugin}}
	if k.plugin == "off" {
		plain.Args = []string{"--disable-admission-plugins=" + Plugin}
	}
	var b strings.Builder
	b.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n")
	add := func(place string, mode vectors.FailureMode) error {
		file := place + ".kubeconfig"
		conditions := ""
		if k.gate == "on" {
			conditions = ", " + contextField + ": " + reference.ConditionsContext
		}
		_, _ = fmt.Fprintf(&b, authorizer, place, local.DirPlaceholder+"/"+file, mode, conditions)
		plain.Files[file], err = kubeconfig(s.hooks, place)
		return err
	}
	for i := range length {
		for _, mode := range []vectors.FailureMode{vectors.FailDeny, vectors.FailNoOpinion} {
			if err := add(placeOf(i, mode), mode); err != nil {
				return err
			}
		}
	}
	if err := add(behindAll, vectors.FailNoOpinion); err != nil {
		return err
	}
	b.WriteString("- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n")
	plain.Authorization = []byte(b.String())
	s.Target, err = target.Start(ctx, options(o, plain, map[string]bool{Gate: k.gate == "on"}))
	return err
}

// authorizer is one webhook. It is asked each time.
const authorizer = `- {type: Webhook, name: %[1]s, webhook: {authorizedTTL: 1s, unauthorizedTTL: 1s, cacheAuthorizedRequests: false, cacheUnauthorizedRequests: false,
    timeout: 5s, subjectAccessReviewVersion: v1, failurePolicy: %[3]s%[4]s, connectionInfo: {type: KubeConfigFile, kubeConfigFile: "%[2]s"}}}
`

func options(o Options, plain *target.Plain, gates map[string]bool) target.Options {
	return target.Options{
		Cell:    verdicts.Cell{Name: o.Release.Minor + "-gate", Provider: target.Local, Kubernetes: o.Release.Version, Gate: string(target.AskDefault)},
		Release: o.Release, FeatureGates: gates, Binaries: o.Binaries, Plain: plain,
	}
}

// unknown says in a line that an API server does not know the gate, which version it may be.
func unknown(ctx context.Context, err error, o Options) error {
	if !strings.Contains(err.Error(), "unrecognized feature gate: "+Gate) {
		return err
	}
	t, startErr := target.Start(ctx, options(o, &target.Plain{}, nil))
	if startErr != nil {
		return startErr
	}
	return errors.Join(fmt.Errorf("kube-apiserver %s %w", t.Witness.GitVersion, ErrUnknown), t.Stop())
}
