package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// authorizer is one webhook. It is asked each time.
const authorizer = `- {type: Webhook, name: %[1]s, webhook: {authorizedTTL: 1s, unauthorizedTTL: 1s, cacheAuthorizedRequests: false, cacheUnauthorizedRequests: false,
    timeout: 5s, subjectAccessReviewVersion: v1, failurePolicy: %[2]s%[3]s, connectionInfo: {type: KubeConfigFile, kubeConfigFile: "%[4]s/%[1]s"}}}
`

func (p *player) start(ctx context.Context, k kind, length int, o Options) (err error) {
	plain, conditions := &server.Plain{Files: map[string][]byte{}, Args: []string{"--enable-admission-plugins=" + plugin}}, ""
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
		p.Server, err = server.Start(ctx, options(o, plain, map[string]bool{Gate: k.gate == "on"}))
	}
	return err
}

func options(o Options, plain *server.Plain, gates map[string]bool) server.Options {
	return server.Options{
		Cell:    verdicts.Cell{Name: o.Release.Minor + "-gate", Provider: server.Local, Kubernetes: o.Release.Version, Gate: scenarios.GateDefault},
		Release: o.Release, FeatureGates: gates, Binaries: o.Binaries, Plain: plain,
	}
}

// explainUnknown says in a line that an API server does not know the gate, whichever version it is.
func explainUnknown(ctx context.Context, err error, o Options) error {
	if !strings.Contains(err.Error(), "unrecognized feature gate: "+Gate) {
		return err
	}
	t, err := server.Start(ctx, options(o, &server.Plain{}, nil))
	if err != nil {
		return err
	}
	return errors.Join(fmt.Errorf("kube-apiserver %s does not know the gate %s", t.Witness.GitVersion, Gate), t.Stop())
}
