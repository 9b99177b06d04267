// Package granular runs the scenarios of KEP-3617 (Fine-Grained Authorization) through an enforcer before a real API
// server. No API server implements that KEP: what is judged here is the enforcer, and whether the KEP's rules can be
// followed at all.
package granular

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/granular/permissions"
	"github.com/authzconf/authzconf/scenarios"
)

// executors is the group with every right that carries out what granular permissions allow.
const executors = "authzconf:granular-executors"

// Bench is a target with the custom resource of the scenarios and what enforcers need.
type Bench struct {
	target       *target.Target
	replayer     *replay.Replayer
	descriptions *permissions.Set
	webhook      *target.Loopback
	admin        *dynamic.DynamicClient
	client       *kubernetes.Clientset

	mu     sync.Mutex
	actors map[string]actor // by what they are for: another enforcer needs no new ones
}

// Start starts a target. Its requests are not audited: the recorder sees what the enforcer asks for.
func Start(ctx context.Context, o target.Options) (_ *Bench, err error) {
	o.NoAudit = true
	b := &Bench{actors: map[string]actor{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.descriptions, err = permissions.Load(permissions.Descriptions); err != nil {
		return nil, err
	}
	if b.target, err = target.Start(ctx, o); err != nil {
		return nil, err
	}
	if m := b.target.Witness.Mismatches; len(m) > 0 {
		return nil, fmt.Errorf("the target is not what was asked for: %s", m[0])
	}
	if b.admin, err = dynamic.NewForConfig(b.target.Admin()); err != nil {
		return nil, err
	}
	if b.client, err = kubernetes.NewForConfig(b.target.Admin()); err != nil {
		return nil, err
	}
	if b.replayer, err = replay.New(b.target); err != nil {
		return nil, err
	}
	if b.webhook, err = target.ServeLoopback(ctx, converter(), nil); err != nil {
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

// Close ends everything. The API server goes first: what it asks has to be answered until then.
func (b *Bench) Close() error {
	var errs []error
	if b.target != nil {
		errs = append(errs, b.target.Stop())
	}
	if b.webhook != nil {
		errs = append(errs, b.webhook.Close())
	}
	return errors.Join(errs...)
}

// actor is a ServiceAccount in a namespace of its own, which holds some permissions on one resource there.
type actor struct {
	namespace, user, token string
}

const (
	account = "actor"
	subject = "subject"
)

// actorOf is the actor of an attempt, without its token.
func actorOf(id string) actor {
	sum := sha256.Sum256([]byte(id))
	namespace := "granular-" + hex.EncodeToString(sum[:6])
	return actor{namespace: namespace, user: "system:serviceaccount:" + namespace + ":" + account}
}

// actor provides the actor of an attempt; no two attempts have the same id.
func (b *Bench) actor(ctx context.Context, id string, gvr schema.GroupVersionResource, grants, names []string) (actor, error) {
	b.mu.Lock()
	a, ok := b.actors[id]
	b.mu.Unlock()
	if ok {
		return a, nil
	}
	a = actorOf(id)
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
	b.mu.Lock()
	defer b.mu.Unlock()
	b.actors[id] = a
	return a, nil
}

//go:embed widget.yaml
var widgetYAML []byte

// ready is how long something of the API server may take to come into force.
const ready = 30 * time.Second

func poll(ctx context.Context, what string, is func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, ready, true, is)
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

var (
	crds    = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets = schema.GroupVersion{Group: "granular.authzconf.dev", Version: "v1"}
)

// installWidgets makes the custom resource, whose versions the webhook converts.
func (b *Bench) installWidgets(ctx context.Context) error {
	crd := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(widgetYAML, &crd.Object); err != nil {
		return err
	}
	conversion := map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig":             map[string]any{"url": b.webhook.URL + "/convert", "caBundle": base64.StdEncoding.EncodeToString(b.webhook.CA)},
	}}
	if err := unstructured.SetNestedMap(crd.Object, conversion, "spec", "conversion"); err != nil {
		return err
	}
	if _, err := b.admin.Resource(crds).Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, version := range []string{"v1", "v1beta1"} {
		gvr := widgets.WithResource("widgets")
		gvr.Version = version
		// The schema is published some moments later than the resource.
		err := poll(ctx, "the custom resource and its schema", func(ctx context.Context) (bool, error) {
			_, err := b.admin.Resource(gvr).List(ctx, metav1.ListOptions{})
			if err == nil {
				_, err = b.client.RESTClient().Get().AbsPath("/openapi/v3/apis/" + gvr.GroupVersion().String()).DoRaw(ctx)
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

// converter converts widgets between their versions: what v1 calls nodeName is host in v1beta1.
func converter() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct { // the part of a ConversionReview (apiextensions.k8s.io/v1) that matters
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Request    *struct {
				UID     string           `json:"uid"`
				Desired string           `json:"desiredAPIVersion"`
				Objects []map[string]any `json:"objects"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "not a ConversionReview", http.StatusBadRequest)
			return
		}
		from, to := "host", "nodeName"
		if review.Request.Desired == "granular.authzconf.dev/v1beta1" {
			from, to = to, from
		}
		for _, o := range review.Request.Objects {
			o["apiVersion"] = review.Request.Desired
			if spec, ok := o["spec"].(map[string]any); ok {
				if v, ok := spec[from]; ok {
					spec[to] = v
					delete(spec, from)
				}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind, "response": map[string]any{
			"uid": review.Request.UID, "convertedObjects": review.Request.Objects, "result": map[string]any{"status": "Success"},
		}})
	})
}
