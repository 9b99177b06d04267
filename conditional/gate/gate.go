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
	"strings"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conditional/reference"
	"github.com/authzconf/authzconf/conditional/vectors"
	"github.com/authzconf/authzconf/conditional/wire"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/verdicts"
)

// Gate is the name of the gate.
const Gate = "ConditionalAuthorization"

const plugin = "AuthorizationConditionsEnforcer"

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
	// Server is the program and its version, Wire the revision in which the webhooks spoke.
	Server string `json:"server"`
	Wire   string `json:"wire"`
	// Seen are in the order in which they were played.
	Seen []Seen `json:"seen"`
}

type kind struct{ gate, plugin string }

// Run plays vectors, those about the same configuration on one API server.
func Run(ctx context.Context, all []*vectors.Vector, o Options) (*Play, error) {
	out, of, length := &Play{Wire: o.Wire.Name}, map[kind][]*vectors.Vector{}, 1
	for _, v := range all {
		if m := v.APIServer; Cannot(v, o.Wire) == "" {
			k := kind{m.Server.Gate, m.Server.Plugin}
			of[k], length = append(of[k], v), max(length, len(m.Chain), len(m.Compound))
		}
	}
	// The usual one comes first, and always: what does not start otherwise is held against it.
	for i, k := range []kind{{"on", "on"}, {"on", "off"}, {"off", "on"}, {"off", "off"}, {"rolledBack", "on"}} {
		if i > 0 && of[k] == nil {
			continue
		}
		if err := out.on(ctx, k, length, of[k], o); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (p *Play) on(ctx context.Context, k kind, length int, all []*vectors.Vector, o Options) (err error) {
	playing := &player{said: &webhooks{wire: o.Wire}}
	if playing.hooks, err = target.ServeLoopback(ctx, playing.said.handler(), nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, playing.hooks.Close()) }()
	if err := playing.start(ctx, k, length, o); err != nil {
		if _, ended := errors.AsType[*local.ProcessError](err); !ended || p.Server == "" {
			return unknown(ctx, err, o)
		}
		for _, v := range all {
			p.Seen = append(p.Seen, Seen{Vector: v.ID})
		}
		return nil
	}
	defer func() { err = errors.Join(err, playing.Stop()) }()
	p.Server = cmp.Or(p.Server, "kube-apiserver "+playing.Witness.GitVersion)
	if err := playing.register(ctx); err != nil {
		return err
	}
	for _, v := range all {
		seen, err := playing.play(ctx, v)
		if err = errors.Join(err, playing.ClusterErr()); err != nil {
			return fmt.Errorf("%s: %w", v.ID, err)
		}
		p.Seen = append(p.Seen, seen)
	}
	return nil
}

// authorizer is one webhook. It is asked each time.
const authorizer = `- {type: Webhook, name: %[1]s, webhook: {authorizedTTL: 1s, unauthorizedTTL: 1s, cacheAuthorizedRequests: false, cacheUnauthorizedRequests: false,
    timeout: 5s, subjectAccessReviewVersion: v1, failurePolicy: %[2]s%[3]s, connectionInfo: {type: KubeConfigFile, kubeConfigFile: "%[4]s/%[1]s"}}}
`

func (p *player) start(ctx context.Context, k kind, length int, o Options) (err error) {
	plain, conditions := &target.Plain{Files: map[string][]byte{}, Args: []string{"--enable-admission-plugins=" + plugin}}, ""
	if k.plugin == "off" {
		plain.Args = []string{"--disable-admission-plugins=" + plugin}
	}
	if k.gate != "off" {
		conditions = ", conditionsEndpointKubeConfigContext: " + reference.ConditionsContext
	}
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	add := func(place string, mode vectors.FailureMode) {
		config += fmt.Sprintf(authorizer, place, mode, conditions, local.DirPlaceholder)
		raw, writeErr := kubeconfig(p.hooks, place)
		plain.Files[place], err = raw, errors.Join(err, writeErr)
	}
	for i := range length {
		add(placeOf(i, vectors.FailDeny), vectors.FailDeny)
		add(placeOf(i, vectors.FailNoOpinion), vectors.FailNoOpinion)
	}
	if add(behindAll, vectors.FailNoOpinion); err == nil {
		plain.Authorization = []byte(config + "- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n")
		p.Target, err = target.Start(ctx, options(o, plain, map[string]bool{Gate: k.gate == "on"}))
	}
	return err
}

func options(o Options, plain *target.Plain, gates map[string]bool) target.Options {
	return target.Options{
		Cell:    verdicts.Cell{Name: o.Release.Minor + "-gate", Provider: target.Local, Kubernetes: o.Release.Version, Gate: string(target.AskDefault)},
		Release: o.Release, FeatureGates: gates, Binaries: o.Binaries, Plain: plain,
	}
}

// unknown says in a line that an API server does not know the gate, whichever version it is.
func unknown(ctx context.Context, err error, o Options) error {
	if !strings.Contains(err.Error(), "unrecognized feature gate: "+Gate) {
		return err
	}
	t, err := target.Start(ctx, options(o, &target.Plain{}, nil))
	if err != nil {
		return err
	}
	return errors.Join(fmt.Errorf("kube-apiserver %s does not know the gate %s", t.Witness.GitVersion, Gate), t.Stop())
}
