package granular

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"text/template"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/granular/enforcer"
	"github.com/authzconf/authzconf/granular/model"
	"github.com/authzconf/authzconf/granular/permissions"
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
	// Kind is Reference, Policies or Webhook.
	Kind string
	// Descriptions are the permissions of fields.
	Descriptions *permissions.Set
	// Steps are those of the reference.
	Steps enforcer.Steps
	// URL is where the webhook is, and CA the authority of its certificate in PEM, if it is not one of the system's.
	URL string
	CA  []byte
	// Kubeconfig is a file to write, by which the webhook may ask the API server.
	Kubeconfig string
}

func (a *Attempt) applies(kind string) bool {
	verb, held := strings.CutPrefix(a.Checks[0], "yes ")
	return kind != Policies && kind != Webhook || held && verb != permissions.GeneralVerb
}

func (a *Attempt) holds(verb string) bool { return slices.Contains(a.Grants, verb) }

// decided says of what keeps no record of its own what it has decided, by what the API server's authorizer was asked.
// Of an attempt by a webhook the model says what has to become of it: its descriptions may be others than those of the
// scenario.
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
	*target.Loopback
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
			g.Loopback, err = target.ServeLoopback(ctx, e, nil)
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
	if g.Loopback != nil {
		_ = g.Loopback.Close()
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
