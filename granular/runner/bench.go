// Package runner runs the scenarios of KEP-3617 through an enforcer before a real
// API server. No API server implements that KEP: what is judged here is the enforcer,
// and whether the KEP's rules can be followed at all.
package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/granular"
	"github.com/authzconf/authzconf/granular/enforcer"
)

// executors is the group with every right that carries out what granular permissions
// allow.
const executors = "authzconf:granular-executors"

// Bench is a control plane whose authorizer is watched, with the custom resource of
// the scenarios.
type Bench struct {
	Plane        *local.ControlPlane
	Descriptions *granular.Set

	recorder *recorder.Recorder
	webhook  *enforcer.Server
	admin    *dynamic.DynamicClient
	client   *kubernetes.Clientset
	actors   actors
}

// Start starts a control plane.
func Start(ctx context.Context, release local.Release, binaries *local.Binaries) (_ *Bench, err error) {
	b := &Bench{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.Descriptions, err = granular.Load(granular.Descriptions); err != nil {
		return nil, err
	}
	if b.recorder, err = recorder.Start(recorder.Options{}); err != nil {
		return nil, err
	}
	config, err := yaml.Marshal(watched())
	if err != nil {
		return nil, err
	}
	b.Plane, err = local.Start(ctx, local.Options{
		Release: release, Binaries: binaries, AuthorizationConfig: config,
		Files: map[string][]byte{recorderFile: b.recorder.Kubeconfig(recorder.Front)},
	})
	if err != nil {
		return nil, err
	}
	if b.admin, err = dynamic.NewForConfig(b.Plane.Admin()); err != nil {
		return nil, err
	}
	if b.client, err = kubernetes.NewForConfig(b.Plane.Admin()); err != nil {
		return nil, err
	}
	if b.webhook, err = enforcer.Serve(converter()); err != nil {
		return nil, err
	}
	if err := b.bindExecutors(ctx); err != nil {
		return nil, err
	}
	return b, b.installWidgets(ctx)
}

const recorderFile = "recorder.kubeconfig"

// watched is an authorizer chain with the recorder before Node and RBAC.
func watched() apiserverv1.AuthorizationConfiguration {
	file := local.DirPlaceholder + "/" + recorderFile
	return apiserverv1.AuthorizationConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiserver.config.k8s.io/v1", Kind: "AuthorizationConfiguration"},
		Authorizers: []apiserverv1.AuthorizerConfiguration{
			{Type: "Webhook", Name: "recorder", Webhook: &apiserverv1.WebhookConfiguration{
				Timeout: metav1.Duration{Duration: 10 * time.Second},
				// A review that was not recorded must not let a request through.
				FailurePolicy:  apiserverv1.FailurePolicyDeny,
				ConnectionInfo: apiserverv1.WebhookConnectionInfo{Type: "KubeConfigFile", KubeConfigFile: &file},
				// So short that nothing is answered from memory; 0 would be minutes.
				AuthorizedTTL: metav1.Duration{Duration: time.Nanosecond}, UnauthorizedTTL: metav1.Duration{Duration: time.Nanosecond},
				SubjectAccessReviewVersion: "v1", MatchConditionSubjectAccessReviewVersion: "v1",
			}},
			{Type: "Node", Name: "node"}, {Type: "RBAC", Name: "rbac"},
		},
	}
}

// Close ends everything. The API server goes first: what it asks has to be answered
// until then.
func (b *Bench) Close() error {
	var errs []error
	if b.Plane != nil {
		errs = append(errs, b.Plane.Stop())
	}
	if b.webhook != nil {
		errs = append(errs, b.webhook.Close())
	}
	if b.recorder != nil {
		errs = append(errs, b.recorder.Close())
	}
	return errors.Join(errs...)
}

// healthy says why results cannot be trusted.
func (b *Bench) healthy() error {
	if err := cmp.Or(b.Plane.Err(), b.recorder.Err()); err != nil {
		return err
	}
	if n := b.recorder.Counts().Points[recorder.Front].Malformed; n > 0 {
		return fmt.Errorf("the API server sent %d reviews that cannot be read", n)
	}
	return nil
}
