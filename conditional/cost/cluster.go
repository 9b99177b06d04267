package cost

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	webhook "github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/clusters/local"
	reference "github.com/authzconf/authzconf/conditional/reference"
)

const (
	authorizerKubeconfig = "conditional.kubeconfig"
	admissionFile        = "admission.yaml"
)

// authorization has the webhook before RBAC. It is asked each time: a remembered
// answer would outlive the policies of a case.
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

// Group are the users whose requests the webhook is asked about: the API server's
// own, and those of the admin, stay out of the counts.
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

// Cluster is a control plane with the reference authorizer before RBAC, its
// validating admission webhook, and a mutating one.
type Cluster struct {
	*local.ControlPlane
	Authorizer *reference.Authorizer
	// Reviewed, Judged and Mutated count the calls of the three webhooks.
	Reviewed, Judged, Mutated atomic.Int64

	server *webhook.Server
	admin  *http.Client
	// mutate is what the mutating webhook answers: a JSON patch, or nil.
	mutate atomic.Pointer[[]byte]
	// during are policies that the mutating webhook puts into force.
	during   atomic.Pointer[reference.Snapshot]
	careless atomic.Bool
	mu       sync.Mutex
	access   http.Handler // answers the API server's reviews
}

// StartOptions change the control plane.
type StartOptions struct {
	// Options are those of the control plane; what the webhooks need is added.
	Options local.Options
	// Cached says whether the API server remembers the authorizer's answers.
	Cached bool
}

// Start starts them. The caller has to call Stop.
func Start(ctx context.Context, o StartOptions) (_ *Cluster, err error) {
	empty, err := reference.NewSnapshot(nil)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Authorizer: reference.New(empty)}
	c.Answer(reference.Handler(reference.Today{Authorizer: c.Authorizer, Careless: c.careless.Load}))
	if c.server, err = webhook.Start(c.handler(), nil); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	config, err := c.server.Kubeconfig()
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(c.server.Base())
	if err != nil {
		return nil, err
	}
	asClient, err := admissionKubeconfig(config, base.Host)
	if err != nil {
		return nil, err
	}
	options := o.Options
	options.AuthorizationConfig = fmt.Appendf(nil, authorization, local.DirPlaceholder+"/"+authorizerKubeconfig, o.Cached, Group)
	options.Files = map[string][]byte{
		authorizerKubeconfig: config, "admission.kubeconfig": asClient,
		admissionFile: fmt.Appendf(nil, admission, local.DirPlaceholder+"/admission.kubeconfig"),
	}
	options.KubeAPIServerArgs = append(options.KubeAPIServerArgs, "--admission-control-config-file="+admissionFile)
	if c.ControlPlane, err = local.Start(ctx, options); err != nil {
		return nil, err
	}
	if c.admin, err = rest.HTTPClientFor(c.Admin()); err != nil {
		return nil, err
	}
	return c, nil
}

// Stop ends the control plane, then its webhooks.
func (c *Cluster) Stop() error {
	var err error
	if c.ControlPlane != nil {
		err = c.ControlPlane.Stop()
	}
	if c.admin != nil {
		c.admin.CloseIdleConnections()
	}
	return errors.Join(err, c.server.Close())
}

// Answer replaces what the API server's reviews are answered by.
func (c *Cluster) Answer(h http.Handler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.access = h
}

// handler serves the three webhooks and counts.
func (c *Cluster) handler() http.Handler {
	mux := http.NewServeMux()
	judge := reference.Today{Authorizer: c.Authorizer}.Admission(c.namespace)
	mux.HandleFunc(reference.AdmitPath, func(w http.ResponseWriter, req *http.Request) {
		c.Judged.Add(1)
		judge.ServeHTTP(w, req)
	})
	mux.HandleFunc(mutatePath, func(w http.ResponseWriter, req *http.Request) {
		c.Mutated.Add(1)
		c.mutation(w, req)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		c.Reviewed.Add(1)
		c.mu.Lock()
		h := c.access
		c.mu.Unlock()
		h.ServeHTTP(w, req)
	})
	return mux
}

// namespace reads one as JSON.
func (c *Cluster) namespace(name string) ([]byte, error) {
	r, err := c.Send(context.Background(), nil, http.MethodGet, "/api/v1/namespaces/"+url.PathEscape(name), "", nil)
	if err != nil {
		return nil, err
	}
	if r.Code != http.StatusOK {
		return nil, fmt.Errorf("namespace %s: status %d", name, r.Code)
	}
	return r.Body, nil
}

// base64CA is the authority of the webhooks, for their configurations.
func (c *Cluster) base64CA() string { return base64.StdEncoding.EncodeToString(c.server.CA()) }

// settle is how long the API server may take to see a webhook configuration.
const settle = 20 * time.Second
