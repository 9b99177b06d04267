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

// authorizer is the configuration of one webhook. The API server does not cache its answers.
const authorizer = `- {type: Webhook, name: %[1]s, webhook: {authorizedTTL: 1s, unauthorizedTTL: 1s, cacheAuthorizedRequests: false, cacheUnauthorizedRequests: false,
    timeout: 5s, subjectAccessReviewVersion: v1, failurePolicy: %[2]s%[3]s, connectionInfo: {type: KubeConfigFile, kubeConfigFile: "%[4]s/%[1]s"}}}
`

// forms are the fields by which an AuthorizationConfiguration can name the kubeconfig's context for conditions. The
// newest comes first: it is the form of kubernetes/kubernetes#137633, and the second is the form of the KEP's text.
var forms = []struct{ field, text string }{
	{newestForm, ", conditionsReview: {version: v1alpha1, kubeConfigContextName: " + reference.ConditionsContext + "}"},
	{"conditionsEndpointKubeConfigContext", ", conditionsEndpointKubeConfigContext: " + reference.ConditionsContext},
}

const newestForm = "conditionsReview"

// start starts an API server with webhooks for chains of a length. It tries the forms of the configuration until the
// API server accepts one.
func (p *player) start(ctx context.Context, k kind, length int, o Options) (err error) {
	plain := &server.Plain{Files: map[string][]byte{"audit-policy.yaml": []byte(auditPolicy)}, Args: []string{
		"--audit-policy-file=audit-policy.yaml", "--audit-log-mode=blocking", "--audit-log-path=" + p.audit.path,
	}}
	switch k.plugin {
	case "on":
		plain.Args = append(plain.Args, "--enable-admission-plugins="+plugin)
	case "off":
		plain.Args = append(plain.Args, "--disable-admission-plugins="+plugin)
	}
	if err := p.addKubeconfigs(plain, length); err != nil {
		return err
	}
	for _, form := range forms {
		plain.Authorization = chainOf(length, k.context(form.text))
		p.Server, err = server.Start(ctx, options(o, plain, map[string]bool{Gate: k.gate == "on"}))
		if p.form = form.field; err == nil || !strings.Contains(err.Error(), `.`+form.field+`"`) {
			return err
		}
	}
	return err
}

// contextText returns the text that names the context for conditions, in the form that the API server accepts.
func (p *player) contextText() string {
	for _, form := range forms {
		if form.field == p.form {
			return form.text
		}
	}
	return ""
}

// context returns the part of a webhook's configuration that makes the API server ask it for conditions. It is empty
// while the gate is off.
func (k kind) context(text string) string {
	if k.gate == "off" || k.noContext {
		return ""
	}
	return text
}

// places returns the names of the webhooks of a chain, and the failure policy of each.
func places(length int) (names []string, policies []vectors.FailureMode) {
	for i := range length {
		for _, mode := range []vectors.FailureMode{vectors.FailDeny, vectors.FailNoOpinion} {
			names, policies = append(names, placeOf(i, mode)), append(policies, mode)
		}
	}
	return append(names, behindAll), append(policies, vectors.FailNoOpinion)
}

// addKubeconfigs adds the file of each webhook.
func (p *player) addKubeconfigs(plain *server.Plain, length int) (err error) {
	names, _ := places(length)
	for _, place := range names {
		if plain.Files[place], err = kubeconfig(p.hooks, place); err != nil {
			return err
		}
	}
	return nil
}

// chainOf is an AuthorizationConfiguration with webhooks for a length before the API server's own authorizers.
func chainOf(length int, context string) []byte {
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	names, policies := places(length)
	for i, place := range names {
		config += fmt.Sprintf(authorizer, place, policies[i], context, local.DirPlaceholder)
	}
	return []byte(config + "- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n")
}

func options(o Options, plain *server.Plain, gates map[string]bool) server.Options {
	return server.Options{
		Cell: verdicts.Cell{
			Name:       o.Release.Minor + "-gate",
			Provider:   server.Local,
			Kubernetes: o.Release.Version,
			Gate:       scenarios.GateDefault,
		},
		Release:      o.Release,
		FeatureGates: gates,
		Binaries:     o.Binaries,
		Plain:        plain,
	}
}

// explainUnknown turns a long error of an API server that does not know the gate into a short one with the version of
// the API server.
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
