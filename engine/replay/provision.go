package replay

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"

	"github.com/authzconf/authzconf/engine/nodes"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

const (
	// grantTimeout is how long a role and its binding may take to reach the RBAC authorizer's informers.
	grantTimeout = 15 * time.Second
	// tokenSeconds is longer than any upgrade path: its tokens are used on all stages.
	tokenSeconds = 3600
)

// grantPoll are the pauses between two questions whether they have: short ones first.
var grantPoll = wait.Backoff{Duration: 2 * time.Millisecond, Factor: 1.05, Steps: 1000, Cap: 50 * time.Millisecond}

type provisioner struct {
	client kubernetes.Interface
	mapper meta.RESTMapper
	// accounts has the ServiceAccount default made in every namespace, in place of the controller that does not run.
	accounts bool
}

// provision creates namespaces, service accounts, pods, nodes, manifests and grants, and waits until every grant
// is in force. Afterwards the requests of the scenario meet a settled server.
func (run *run) provision(ctx context.Context) error {
	places := placesOf(run.bound)
	if err := run.admin.places(ctx, places); err != nil {
		return err
	}
	manifests := slices.Concat(run.bound.Manifests, run.bound.Objects)
	var rendered []scenarios.RBACObject
	if !run.isGrantedElsewhere {
		rendered = scenarios.RenderRBAC(run.bound)
	}
	run.grants = map[string][]scenarios.RBACObject{}
	var initial []scenarios.RBACObject
	for _, o := range rendered {
		if o.Grant != "" {
			run.grants[o.Grant] = append(run.grants[o.Grant], o)
		}
		if o.InForce {
			initial = append(initial, o)
		}
	}
	if slices.Contains(run.bound.Requires.Capabilities, scenarios.Aggregation) {
		if err := run.target.Aggregate(ctx); err != nil {
			return fmt.Errorf("the aggregated API: %w", err)
		}
	}
	run.target.SetPolicy(run.bound.Policy)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return run.admin.grant(groupCtx, initial) })
	group.Go(func() error { return run.admin.apply(groupCtx, manifests) })
	if err := group.Wait(); err != nil {
		return err
	}
	if err := run.admin.awaitPods(ctx, run.bound); err != nil {
		return err
	}
	return run.mintTokens(ctx)
}

// places are the objects that requestors and namespaced things need, by path: those outside of namespaces first.
type places struct {
	outside, within map[string]runtime.Object
	running         []*scenarios.ServiceAccount // with a pod on a real node
}

func placesOf(s *scenarios.Scenario) places {
	p := places{outside: map[string]runtime.Object{}, within: map[string]runtime.Object{}}
	for _, r := range s.Requestors {
		if r.ServiceAccount != nil {
			p.account(r.ServiceAccount)
		}
	}
	for _, g := range s.Grants {
		p.namespace(g.Namespace)
	}
	for _, st := range s.Steps {
		if r := st.Sent(); r != nil {
			p.namespace(r.Namespace)
		}
	}
	for _, o := range slices.Concat(s.Manifests, s.Objects) {
		if o["kind"] != "ClusterRoleBinding" {
			p.namespace(scenarios.Text(o, "metadata", "namespace"))
		}
	}
	return p
}

func (p *places) namespace(name string) (path string) {
	path = "/api/v1/namespaces/" + name
	if name != "" {
		p.outside[path] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	return path
}

func (p *places) account(sa *scenarios.ServiceAccount) {
	space := p.namespace(sa.Namespace)
	p.within[space+"/serviceaccounts/"+sa.Name] = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: sa.Name}}
	if sa.Running {
		p.running = append(p.running, sa)
		return
	}
	if sa.Pod != "" { // the least pod that a token can be bound to: it never runs
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: sa.Pod},
			Spec: corev1.PodSpec{
				NodeName: sa.Node, ServiceAccountName: sa.Name,
				Containers: []corev1.Container{{Name: "pause", Image: "pause"}},
			},
		}
		if sa.Node == "" { // nor does a scheduler give it a node
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "authzconf.dev/never"}}
		}
		p.within[space+"/pods/"+sa.Pod] = pod
	}
	if sa.Secret != "" {
		p.within[space+"/secrets/"+sa.Secret] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: sa.Secret}}
	}
	if hasObject := ptr.Deref(sa.NodeObject, true); sa.Node != "" && hasObject {
		p.outside["/api/v1/nodes/"+sa.Node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: sa.Node}}
	}
}

// defaultAccount is the ServiceAccount of every namespace, and of the pods there that name none.
const defaultAccount = "default"

func (p *places) addDefaultAccounts() {
	for at, object := range p.outside {
		if _, isNamespace := object.(*corev1.Namespace); isNamespace {
			p.within[at+"/serviceaccounts/"+defaultAccount] = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: defaultAccount}}
		}
	}
}

// places creates what is outside of namespaces, then what is within, each at once.
func (p *provisioner) places(ctx context.Context, want places) error {
	if p.accounts {
		want.addDefaultAccounts()
	}
	for _, objects := range []map[string]runtime.Object{want.outside, want.within} {
		group, groupCtx := errgroup.WithContext(ctx)
		for at, object := range objects {
			group.Go(func() error { return p.create(groupCtx, at, object) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	for _, sa := range want.running { // the account has to be there
		if err := p.runPod(ctx, sa); err != nil {
			return err
		}
	}
	return nil
}

// create creates an object that will be read at a path. A namespace may be there, and so may its default account: advised
// permissions are for namespaces as they are called, default among them. A pod is tried until the admission of a cluster with nodes has heard
// of its account, which was made just before.
func (p *provisioner) create(ctx context.Context, at string, object runtime.Object) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, grantPoll.Duration, grantTimeout, true, func(ctx context.Context) (bool, error) {
		last = p.client.CoreV1().RESTClient().Post().AbsPath(path.Dir(at)).Body(object).Do(ctx).Error()
		return !apierrors.IsForbidden(last) || !strings.Contains(last.Error(), "error looking up service account"), nil
	})
	_, isNamespace := object.(*corev1.Namespace)
	if isNamespace || path.Base(at) == defaultAccount {
		last = utilerrors.FilterOut(last, apierrors.IsAlreadyExists)
	}
	return cmp.Or(last, err)
}

func (run *run) mintTokens(ctx context.Context) error {
	run.tokens, run.certificates = map[string]string{}, map[string]certificate{}
	for _, alias := range slices.Sorted(maps.Keys(run.bound.Requestors)) {
		if err := run.signCertificate(alias); err != nil {
			return err
		}
		sa := run.bound.Requestors[alias].ServiceAccount
		if sa == nil {
			continue
		}
		var err error
		if sa.Running { // the one that the kubelet put into the pod
			run.tokens[alias], err = nodes.Token(ctx, run.target.Admin(), sa.Namespace, sa.Pod)
		} else {
			run.tokens[alias], err = run.admin.token(ctx, sa)
		}
		if err != nil {
			return fmt.Errorf("a token for %s/%s: %w", sa.Namespace, sa.Name, err)
		}
	}
	return nil
}

// dateTokens gives the tokens whose times a scenario states these times, counted from now.
func (run *run) dateTokens() (err error) {
	for alias, requestor := range run.bound.Requestors {
		sa := requestor.ServiceAccount
		if sa == nil || len(sa.Times) == 0 {
			continue
		}
		if run.tokens[alias], err = signAgain(run.tokens[alias], sa, run.target.ServiceAccountKey()); err != nil {
			return fmt.Errorf("a token for %s/%s: %w", sa.Namespace, sa.Name, err)
		}
	}
	return nil
}

// token binds to the pod, the node, or nothing, as the service account says.
func (p *provisioner) token(ctx context.Context, sa *scenarios.ServiceAccount) (_ string, err error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenSeconds))}}
	var bound metav1.Object
	kind := ""
	switch core := p.client.CoreV1(); {
	case sa.Pod != "":
		kind = "Pod"
		bound, err = core.Pods(sa.Namespace).Get(ctx, sa.Pod, metav1.GetOptions{})
	case sa.Secret != "":
		kind = "Secret"
		bound, err = core.Secrets(sa.Namespace).Get(ctx, sa.Secret, metav1.GetOptions{})
	case sa.Node != "":
		kind = "Node"
		bound, err = core.Nodes().Get(ctx, sa.Node, metav1.GetOptions{})
	}
	if err != nil {
		return "", err
	}
	if kind != "" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			Kind:       kind,
			APIVersion: "v1",
			Name:       bound.GetName(),
			UID:        bound.GetUID(),
		}
	}
	answer, err := p.client.CoreV1().ServiceAccounts(sa.Namespace).CreateToken(ctx, sa.Name, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}

// unappliedGrantError is the error of a change that was accepted and that reviews do not show.
type unappliedGrantError struct{ verdicts.UnappliedGrant }

func (u *unappliedGrantError) Error() string {
	return fmt.Sprintf(
		"the authorizer still answers allowed=%v after %s to %v (%s)",
		u.Answer.Allowed,
		grantTimeout,
		u.Review,
		u.Answer.Reason,
	)
}

// inForce asks the authorizer, until the answer is the wanted one. The question carries the probe mark, so that
// the recorder keeps it apart; no grant looks at extra.
func (p *provisioner) inForce(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec, want bool) error {
	review := spec
	review.Extra = map[string]authorizationv1.ExtraValue{
		recorder.ProbeExtraKey: {"true"},
		// For a webhook whose match conditions read it, and would err.
		serviceaccount.NodeNameKey: {"probe"},
	}
	u := &unappliedGrantError{verdicts.UnappliedGrant{Review: spec, Want: want}}
	begin := time.Now()
	timeoutCtx, cancel := context.WithTimeout(ctx, grantTimeout)
	defer cancel()
	err := grantPoll.DelayFunc().Until(timeoutCtx, true, false, func(ctx context.Context) (bool, error) {
		answer, err := p.client.AuthorizationV1().
			SubjectAccessReviews().
			Create(ctx, &authorizationv1.SubjectAccessReview{Spec: review}, metav1.CreateOptions{})
		if err == nil {
			u.Answer, u.Reviews, u.Millis = answer.Status, u.Reviews+1, time.Since(begin).Milliseconds()
		}
		return err == nil && answer.Status.Allowed == want, err
	})
	if timeoutCtx.Err() != nil && ctx.Err() == nil && err != nil {
		return u
	}
	return err
}

// signAgain gives a token the times of a scenario, and signs it as the API server of our own control planes does: ES256.
func signAgain(token string, sa *scenarios.ServiceAccount, pem []byte) (string, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(pem)
	key, ok := parsed.(*ecdsa.PrivateKey)
	parts := strings.Split(token, ".")
	if err != nil || !ok || len(parts) != 3 {
		return "", errors.Join(errors.New("the token cannot be signed again"), err)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	claims := map[string]any{}
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil {
		return "", fmt.Errorf("the claims of a token: %w", err)
	}
	for claim := range sa.Times {
		in := claims
		if private, ok := claims["kubernetes.io"].(map[string]any); ok && claim == "warnafter" {
			in = private
		}
		in[claim] = time.Now().Add(sa.At(claim)).Unix()
	}
	if payload, err = json.Marshal(claims); err != nil {
		return "", err
	}
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(payload)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}
