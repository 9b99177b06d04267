// Package granular runs the scenarios of KEP-3617 (Fine-Grained Authorization) through an enforcer before a real API
// server. No API server implements that KEP: what is judged here is the enforcer, and whether the KEP's rules can be
// followed at all.
package granular

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/scenarios"
)

// executors is the group with every right that carries out what granular permissions allow.
const executors = "authzconf:granular-executors"

// Bench is a target with the custom resource of the scenarios and what enforcers need.
type Bench struct {
	target   *target.Target
	replayer *replay.Replayer
	admin    *dynamic.DynamicClient
	client   kubernetes.Interface

	actors sync.Map // by what they are for: another enforcer needs no new ones
}

// Start starts a target. Its requests are not audited: the recorder sees what the enforcer asks for.
func Start(ctx context.Context, o target.Options) (_ *Bench, err error) {
	o.NoAudit = true
	b := &Bench{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.target, err = target.Start(ctx, o); err != nil {
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

// actorOf is the actor of an attempt, without its token.
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
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, ready, true, is)
	if err != nil {
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
