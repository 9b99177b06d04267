package today

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	webhook "github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

const (
	authorizerKubeconfig = "conditional.kubeconfig"
	admissionFile        = "admission.yaml"
)

// authorization is the configuration with the webhook before RBAC. Answers are cached only if a test asks for that: a
// cached answer would be used after the policies of a case have changed.
const authorization = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: conditional
  webhook:
    authorizedTTL: 1s
    unauthorizedTTL: 1s
    cacheAuthorizedRequests: %[2]t
    cacheUnauthorizedRequests: %[2]t
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    matchConditions:
    - expression: "'%[3]s' in request.groups"
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: "%[1]s"}
- {type: Node, name: node}
- {type: RBAC, name: rbac}
`

// Group is the group of the users whose requests the webhook is asked about. Requests of the API server itself and of
// the admin are not counted.
const Group = "conditional:users"

// admission has the API server authenticate to admission webhooks.
const admission = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %[1]s}
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %[1]s}
`

// Cluster is a control plane with the reference authorizer before RBAC, and its validating admission webhook.
type Cluster struct {
	*server.Server
	Authorizer *reference.Authorizer
	// Reviewed and Judged count the calls of the authorization webhook and of the validating webhook.
	Reviewed, Judged atomic.Int64

	server *webhook.Server
	mux    *http.ServeMux
	admin  *http.Client
	access atomic.Pointer[http.Handler] // the handler that answers the reviews of the API server
}

// StartOptions are the options of a control plane.
type StartOptions struct {
	// Binaries finds or builds the programs of the control plane.
	Binaries *local.Binaries
	// FeatureGates are the feature gates of the API server that differ from the default.
	FeatureGates map[string]bool
	// Cached reports whether the API server caches the authorizer's answers.
	Cached bool
	// Audit is the file of the audit log, which has only metadata. Without it there is no log.
	Audit string
	// Args are additional arguments of the API server.
	Args []string
}

// Start starts it. The caller has to call Stop.
func Start(ctx context.Context, o StartOptions) (_ *Cluster, err error) {
	empty, err := reference.NewSnapshot(nil)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Authorizer: reference.New(wire.Seed, empty), mux: http.NewServeMux()}
	c.answer(reference.Handler(wire.Seed, Today{Authorizer: c.Authorizer}))
	c.handle(admitPath, &c.Judged, Today{Authorizer: c.Authorizer}.Admission(c.namespace))
	c.handle("/", &c.Reviewed, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { (*c.access.Load()).ServeHTTP(w, req) }))
	if c.server, err = webhook.Start(c.mux, nil); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	plain, err := c.plain(o.Cached)
	if err != nil {
		return nil, err
	}
	plain.Args = append(plain.Args, o.Args...)
	if o.Audit != "" {
		plain.Files["metadata.yaml"] = []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
		plain.Args = append(plain.Args, "--audit-policy-file=metadata.yaml", "--audit-log-mode=blocking", "--audit-log-path="+o.Audit)
	}
	release := local.Newest()
	c.Server, err = server.Start(ctx, server.Options{
		Cell: verdicts.Cell{
			Name:       release.Minor + "-conditional",
			Provider:   server.Local,
			Kubernetes: release.Version,
			Gate:       scenarios.GateDefault,
		},
		Release:      release,
		FeatureGates: o.FeatureGates,
		Binaries:     o.Binaries,
		Plain:        plain,
	})
	if err != nil {
		return nil, err
	}
	if wrong := c.Witness.Mismatches; len(wrong) > 0 {
		return nil, errors.New("the control plane is not what was asked for: " + strings.Join(wrong, "; "))
	}
	c.admin, err = rest.HTTPClientFor(c.Admin())
	return c, err
}

// plain is the authorizer chain and the admission configuration that reach the webhooks.
func (c *Cluster) plain(cached bool) (*server.Plain, error) {
	config, err := c.server.Kubeconfig()
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(c.server.URL)
	if err != nil {
		return nil, err
	}
	asClient, err := admissionKubeconfig(config, base.Host)
	return &server.Plain{
		Authorization: fmt.Appendf(nil, authorization, local.DirPlaceholder+"/"+authorizerKubeconfig, cached, Group),
		Files: map[string][]byte{
			authorizerKubeconfig: config, "admission.kubeconfig": asClient,
			admissionFile: fmt.Appendf(nil, admission, local.DirPlaceholder+"/admission.kubeconfig"),
		},
		Args: []string{"--admission-control-config-file=" + admissionFile},
	}, err
}

// Stop stops the control plane, and then its webhooks.
func (c *Cluster) Stop() error {
	var err error
	if c.Server != nil {
		err = c.Server.Stop()
	}
	if c.admin != nil {
		c.admin.CloseIdleConnections()
	}
	return errors.Join(err, c.server.Close())
}

// answer replaces the handler that answers the reviews of the API server.
func (c *Cluster) answer(h http.Handler) { c.access.Store(&h) }

// handle serves a webhook and counts its calls.
func (c *Cluster) handle(path string, calls *atomic.Int64, h http.Handler) {
	c.mux.HandleFunc(path, func(w http.ResponseWriter, req *http.Request) {
		calls.Add(1)
		h.ServeHTTP(w, req)
	})
}

// namespace reads one as JSON.
func (c *Cluster) namespace(name string) ([]byte, error) {
	r, err := c.Send(context.Background(), nil, http.MethodGet, "/api/v1/namespaces/"+url.PathEscape(name), "", nil)
	if err == nil {
		err = r.expect(http.StatusOK)
	}
	return r.Body, err
}

const (
	// webhooksName is the name of every webhook configuration. The webhooks do not match requests of the admin, so that
	// the admin can always delete the configurations.
	webhooksName = "conditional.authzconf.dev"
	webhooksPath = "/apis/admissionregistration.k8s.io/v1/"
)

// register has the API server call an admission webhook for every request of the users.
func (c *Cluster) register(ctx context.Context, kind, path string, operations ...string) error {
	return c.Make(ctx, Made{webhooksPath + strings.ToLower(kind) + "s", map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": webhooksName},
		"webhooks": []any{
			map[string]any{
				"name":                    webhooksName,
				"admissionReviewVersions": []string{"v1"},
				"sideEffects":             "None",
				"failurePolicy":           "Fail",
				"timeoutSeconds":          5,
				"clientConfig": map[string]any{
					"url":      c.server.URL + path,
					"caBundle": base64.StdEncoding.EncodeToString(c.server.CA),
				},
				"rules": []any{
					map[string]any{
						"apiGroups":   []string{"*"},
						"apiVersions": []string{"*"},
						"resources":   []string{"*/*"},
						"operations":  operations,
					},
				},
				"matchConditions": []any{
					map[string]any{"name": "users", "expression": fmt.Sprintf("'%s' in request.userInfo.groups", Group)},
				},
			},
		},
	}})
}

// settle is the longest time in which the API server must use a new webhook configuration.
const settle = 20 * time.Second

// until waits until the API server has reached a state.
func until(ctx context.Context, what string, ok wait.ConditionWithContextFunc) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, settle, true, ok)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("not so within %s: %s", settle, what)
	}
	return err
}
