// Package granular runs the scenarios of KEP-3617 (Fine-Grained Authorization) through an enforcer before a real API
// server. No API server implements it: the enforcer is judged, and whether the KEP's rules can be followed at all.
package granular

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/model"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
)

// The kinds of what enforces granular verbs.
const (
	// Reference is a proxy before the API server, which does all of the KEP.
	Reference = "reference"
	// Policies are ValidatingAdmissionPolicies, by which an API server of today enforces what is excluded.
	Policies = "policies"
	// Webhook is somebody's admission webhook, which enforces what is excluded.
	Webhook = "webhook"
)

// By is what enforces granular verbs, and how.
type By struct {
	Kind         string           // Reference, Policies or Webhook
	Descriptions *permissions.Set // the permissions of fields
	Steps        enforcer.Steps   // those of the reference
	// URL is where the webhook is, and CA the authority of its certificate in PEM, if it is not one of the system's.
	URL        string
	CA         []byte
	Kubeconfig string // a file to write, by which the webhook may ask the API server
}

func (a *Attempt) applies(kind string) bool {
	verb, held := strings.CutPrefix(a.Checks[0], "yes ")
	return kind != Policies && kind != Webhook || held && verb != permissions.GeneralVerb
}

func (a *Attempt) holds(verb string) bool { return slices.Contains(a.Grants, verb) }

// decided says of what keeps no record of its own what it has decided, by what the API server's authorizer was asked. Of
// an attempt by a webhook the model says what has to become of it: its descriptions may be others than the scenario's.
func (o *observation) decided(kind string, a *Attempt) *Attempt {
	if kind == Reference {
		return a
	}
	answer, verb, _ := strings.Cut(a.Checks[0], " ")
	first := enforcer.Check{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: verb}, Allowed: answer == "yes"}
	o.decision = &enforcer.Decision{User: o.actor.user, Verb: verb, Checks: []enforcer.Check{first}, Fields: -1}
	for _, q := range o.asked {
		o.decision.Checks = append(o.decision.Checks, enforcer.Check{ResourceAttributes: *q, Allowed: a.holds(q.Verb)})
	}
	o.predicted = o.predicted && (kind == Policies || kind == Webhook)
	if kind != Webhook || !o.predicted || a.Outcome == Rejected {
		return a
	}
	out := *a
	if out.Outcome = Denied; model.Allowed(model.Excluded(o.chains), a.holds) {
		out.Outcome = Allowed
	}
	return &out
}

// gate is the way to what enforces, and what the reference, which is served, has decided, by user.
type gate struct {
	*recorder.Server
	way *rest.Config

	mu        sync.Mutex
	decisions map[string][]enforcer.Decision
}

func (b *Bench) open(ctx context.Context, by By) (g *gate, err error) {
	g = &gate{way: b.target.Anonymous(), decisions: map[string][]enforcer.Decision{}}
	switch by.Kind {
	case Reference:
		e, err := enforcer.New(enforcer.Options{Backend: b.target.Admin(), Group: executors, Descriptions: by.Descriptions, Steps: by.Steps, Record: func(d enforcer.Decision) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.decisions[d.User] = append(g.decisions[d.User], d)
		}})
		if err == nil {
			g.Server, err = server.ServeLoopback(ctx, e, nil)
		}
		if err != nil {
			return nil, err
		}
		g.way = &rest.Config{Host: g.URL, TLSClientConfig: rest.TLSClientConfig{CAData: g.CA}}
	case Policies, Webhook:
		err = b.install(ctx, by)
	}
	return g, err
}

// Close ends the reference. What the API server enforces itself stays.
func (g *gate) Close() {
	if g.Server != nil {
		_ = g.Server.Close()
	}
}

func (g *gate) config(token string) *rest.Config {
	out := rest.CopyConfig(g.way)
	out.BearerToken, out.QPS, out.WarningHandler = token, -1, rest.NoWarnings{} // of fields that no schema has
	return out
}

// take is what was decided for a user, which is forgotten.
func (g *gate) take(user string) []enforcer.Decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := g.decisions[user]
	delete(g.decisions, user)
	return out
}

var (
	//go:embed install.yaml.tmpl
	installText string
	installPage = template.Must(template.New("install").Parse(installText))
)

// install has an API server enforce what is excluded, by policies or by a webhook, and waits until it does.
func (b *Bench) install(ctx context.Context, by By) error {
	values := map[string]string{"URL": by.URL, "CA": base64.StdEncoding.EncodeToString(by.CA)}
	if by.Kind == Policies {
		policies, err := by.Descriptions.Policies()
		if err != nil {
			return err
		}
		values["Policies"] = string(policies)
	}
	var text bytes.Buffer
	if err := installPage.Execute(&text, values); err != nil {
		return err
	}
	manifests, err := scenarios.Manifests(by.Kind, text.Bytes())
	if err != nil {
		return err
	}
	if plane, _ := b.target.Plane(); by.Kubeconfig != "" {
		data, err := os.ReadFile(plane.KubeconfigPath())
		if err == nil {
			err = os.WriteFile(by.Kubeconfig, data, 0o600)
		}
		if err != nil {
			return fmt.Errorf("the kubeconfig for the enforcer: %w", err)
		}
	}
	if _, err = b.replayer.Provision(ctx, &scenarios.Scenario{ID: by.Kind, Objects: manifests}); err == nil {
		err = b.enforced(ctx, true)
	}
	return err
}

// enforced waits until what was made last, the canary, is in force or no longer: the API server reads in the order of making.
func (b *Bench) enforced(ctx context.Context, is bool) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "canary"}}
	return poll(ctx, "what the API server shall enforce", func(ctx context.Context) (bool, error) {
		_, err := b.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return (err != nil && strings.Contains(err.Error(), "granular-canary")) == is, nil
	})
}

// executors is the group with every right that carries out what granular permissions allow.
const executors = "authzconf:granular-executors"

// Bench is a target with the custom resource of the scenarios and what enforcers need.
type Bench struct {
	target   *server.Server
	replayer *replay.Replayer
	admin    *dynamic.DynamicClient
	client   kubernetes.Interface

	actors sync.Map // by what they are for: another enforcer needs no new ones
}

// Start starts a target. Its requests are not audited: the recorder sees what the enforcer asks for.
func Start(ctx context.Context, o server.Options) (_ *Bench, err error) {
	o.NoAudit = true
	b := &Bench{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.target, err = server.Start(ctx, o); err != nil {
		return nil, err
	}
	if b.replayer, err = replay.New(b.target); err != nil {
		return nil, err
	}
	b.client = b.replayer.Admin()
	admin := b.target.Admin()
	admin.WarningHandler = rest.NoWarnings{}
	if b.admin, err = dynamic.NewForConfig(admin); err != nil {
		return nil, err
	}
	all := []string{"*"}
	if err := b.replayer.Grant(ctx, &scenarios.Scenario{ID: "granular", Suffix: "granular-executors", Grants: []scenarios.Grant{
		{Subject: scenarios.Subject{Group: executors}, Verbs: all, APIGroups: all, Resources: all},
	}}); err != nil {
		return nil, err
	}
	return b, b.installWidgets(ctx)
}

// Close ends everything.
func (b *Bench) Close() error {
	if b.target == nil {
		return nil
	}
	return b.target.Stop()
}

// actor is a ServiceAccount in a namespace of its own, which holds some permissions on one resource there.
type actor struct {
	namespace, user, token string
}

const (
	account = "actor"
	subject = "subject"
)

func actorOf(id string) actor {
	sum := sha256.Sum256([]byte(id))
	namespace := "granular-" + hex.EncodeToString(sum[:6])
	return actor{namespace: namespace, user: "system:serviceaccount:" + namespace + ":" + account}
}

func (b *Bench) actor(ctx context.Context, id string, gvr schema.GroupVersionResource, grants, names []string) (actor, error) {
	if known, ok := b.actors.Load(id); ok {
		return known.(actor), nil
	}
	a := actorOf(id)
	needs := &scenarios.Scenario{ID: id, Requestors: map[string]scenarios.Requestor{
		account: {ServiceAccount: &scenarios.ServiceAccount{Namespace: a.namespace, Name: account}},
	}}
	if len(grants) > 0 {
		needs.Grants = []scenarios.Grant{{
			Subject: scenarios.Subject{User: a.user}, Namespace: a.namespace, Verbs: grants, Names: names,
			APIGroups: []string{gvr.Group}, Resources: []string{gvr.Resource, gvr.Resource + "/status"},
		}}
	}
	granted, err := b.replayer.Provision(ctx, needs)
	if err != nil {
		return a, fmt.Errorf("preparing %s: %w", id, err)
	}
	a.token = granted.Token(account)
	b.actors.Store(id, a)
	return a, nil
}

//go:embed widget.yaml
var widgetYAML []byte

// ready is how long something of the API server may take to come into force.
const ready = 30 * time.Second

func poll(ctx context.Context, what string, is func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, ready, true, is); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

var widgets = schema.GroupVersion{Group: "granular.authzconf.dev", Version: "v1"}

func (b *Bench) installWidgets(ctx context.Context) error {
	var crd map[string]any
	err := yaml.UnmarshalStrict(widgetYAML, &crd)
	if err == nil {
		_, err = b.replayer.Provision(ctx, &scenarios.Scenario{ID: "widgets", Objects: []map[string]any{crd}})
	}
	if err != nil {
		return err
	}
	for _, version := range []string{"v1", "v1beta1"} {
		gvr := widgets.WithResource("widgets")
		gvr.Version = version
		// The schema is published some moments later than the resource.
		err := poll(ctx, "the custom resource and its schema", func(ctx context.Context) (bool, error) {
			_, err := b.admin.Resource(gvr).List(ctx, metav1.ListOptions{})
			if err == nil {
				_, err = b.client.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/" + gvr.GroupVersion().String()).DoRaw(ctx)
			}
			return err == nil, ignoreNotFound(err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
		return nil
	}
	return err
}
