package population

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/scenarios"
)

// Population is what was created. It contains tokens, so it must not be printed.
type Population struct {
	Tokens map[string][][]string // the tokens of each identity of each variant, by the variant's name

	settle map[string]string // a token of an agent that takes no part
}

const (
	// atOnce is how many objects are created at the same time. It is enough to keep an API server busy that waits for
	// its storage.
	atOnce    = 32
	tokenLife = 24 * time.Hour
)

// Place is where everything is created.
type Place struct {
	// Admin creates it. The client's own limit of requests should be off.
	Admin *rest.Config
	// Storage, if it is given, is where most objects are written.
	Storage Storage
	// Shared means that the cluster is somebody else's. Existing objects are not ours, and Admin labels what is
	// created.
	Shared bool
	// Kwok has the nodes kept Ready by the controller of kwok that is in the cluster.
	Kwok bool
	// Progress, if it is given, is called by one goroutine at a time with increasing numbers.
	Progress func(done, total int64)
}

type builder struct {
	Place
	client  kubernetes.Interface
	profile *profile.Profile
	total   int64

	counting sync.Mutex
	done     int64
}

// Create creates everything.
func Create(ctx context.Context, place Place, p *profile.Profile) (*Population, error) {
	admin := rest.CopyConfig(place.Admin)
	if !place.Shared {
		admin.ContentType = "application/vnd.kubernetes.protobuf"
		admin.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	b := &builder{Place: place, client: client, profile: p}
	variants, nodes := p.Variants(), p.Nodes+1 // one is that of the pods that take no part
	b.total = int64(nodes + nodes*p.PodsPerNode + p.Authorizer.Bindings + len(variants)*(p.Accounts()+1+2*(p.Identities()+1)))
	if err := b.create(ctx, namespace(podSpace)); err != nil {
		return nil, err
	}
	for i, variant := range variants {
		if err := errors.Join(b.create(ctx, namespace(space(variant))), b.grant(ctx, variant, i == 0)); err != nil {
			return nil, err
		}
	}
	if err := b.createObjects(ctx, nodes); err != nil {
		return nil, err
	}
	out := &Population{Tokens: map[string][][]string{}, settle: map[string]string{}}
	for _, variant := range variants {
		tokens, err := b.agents(ctx, variant)
		if err != nil {
			return nil, err
		}
		last := len(tokens) - 1
		out.Tokens[variant.Name], out.settle[variant.Name] = tokens[:last], tokens[last][0]
	}
	return out, nil
}

// createObjects creates nodes, the pods on them that agents ask for, and bindings for RBAC to look through.
func (b *builder) createObjects(ctx context.Context, nodes int) error {
	// Nodes come first, because a token has the UID of its node only if the node exists. They need no kubelet: see
	// docs/load-setup.md.
	if err := b.createAll(ctx, nodes, "minions/", b.node); err != nil {
		return err
	}
	if b.Kwok {
		if err := b.awaitKwok(ctx); err != nil {
			return err
		}
	}
	// Pods have an account of their own, because that of the namespace exists only after a controller has seen it.
	if err := b.create(ctx, &corev1.ServiceAccount{ObjectMeta: meta(podSpace, podAccount)}); err != nil {
		return err
	}
	if err := b.createAll(ctx, b.profile.Authorizer.Bindings, "clusterrolebindings/", otherBinding); err != nil {
		return err
	}
	each := b.profile.PodsPerNode
	return b.createAll(ctx, nodes*each, "pods/"+podSpace+"/", func(i int) object {
		return pod(podSpace, podName(i/each, i%each), i/each, podAccount)
	})
}

// otherBinding returns a binding that is for nobody who asks.
func otherBinding(i int) object {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta("", fmt.Sprintf("storm:other:%06d", i)),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "storm:read"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "storm:others"}},
	}
}

// agents creates the accounts of a variant's agents, their pods and their tokens.
func (b *builder) agents(ctx context.Context, variant profile.Variant) ([][]string, error) {
	ns, n := space(variant), b.profile.Identities()+1
	account := func(i int) object {
		return &corev1.ServiceAccount{ObjectMeta: meta(ns, accountName(i))}
	}
	if err := b.createAll(ctx, b.profile.Accounts()+1, "serviceaccounts/"+ns+"/", account); err != nil {
		return nil, err
	}
	agent := func(i int) object {
		node, account := sender(b.profile, i)
		return pod(ns, agentName(i), node, account)
	}
	if err := b.createAll(ctx, n, "pods/"+ns+"/", agent); err != nil {
		return nil, err
	}
	tokens := make([][]string, n)
	return tokens, b.forEach(ctx, n, func(ctx context.Context, i int) (err error) {
		tokens[i], err = b.tokens(ctx, variant, i)
		return err
	})
}

// forEach calls f with 0 to n-1, several at the same time, until one call fails, and counts the calls.
func (b *builder) forEach(ctx context.Context, n int, f func(context.Context, int) error) error {
	return parallel(ctx, n, func(ctx context.Context, i int) error {
		err := f(ctx, i)
		if err == nil {
			b.count(1)
		}
		return err
	})
}

func (b *builder) count(n int64) {
	b.counting.Lock()
	defer b.counting.Unlock()
	if b.done += n; b.Progress != nil {
		b.Progress(b.done, b.total)
	}
}

// parallel calls f with 0 to n-1, several at the same time, until one call fails.
func parallel(ctx context.Context, n int, f func(context.Context, int) error) error {
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := 0; i < n && inner.Err() == nil; i++ {
		group.Go(func() error { return f(inner, i) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{Label: "true"}}
}

// kwokKey marks the nodes that kwok keeps (sigs.k8s.io/kwok, the default of --manage-nodes-with-annotation-selector).
// It is also the taint by which kwok's documentation keeps other pods away from them.
const kwokKey = "kwok.x-k8s.io/node"

// node returns a node that nobody runs. Only pods that tolerate as much as ours are scheduled on it.
func (b *builder) node(i int) object {
	n := &corev1.Node{ObjectMeta: meta("", nodeName(i))}
	n.Spec.Taints = []corev1.Taint{{Key: Label, Effect: corev1.TaintEffectNoSchedule}}
	if b.Kwok {
		n.Annotations = map[string]string{kwokKey: "fake"}
	}
	return n
}

const kwokTimeout = time.Minute

func (b *builder) awaitKwok(ctx context.Context) error {
	name := nodeName(b.profile.Nodes)
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, kwokTimeout, true, func(ctx context.Context) (bool, error) {
		n, err := b.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}), err
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case wait.Interrupted(err):
		return &usage.Error{
			Problem: fmt.Sprintf(
				"nobody has the node %s Ready after %s: expected kwok's controller in the cluster, with its stages, or --node-objects bare",
				name,
				kwokTimeout,
			),
		}
	}
	return err
}

func namespace(name string) *corev1.Namespace { return &corev1.Namespace{ObjectMeta: meta("", name)} }

// pod returns a pod on a node. No kubelet has to know it, and it stays although controllers find that the node is not
// alive.
func pod(namespace, name string, node int, account string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: meta(namespace, name),
		Spec: corev1.PodSpec{
			NodeName: nodeName(node), ServiceAccountName: account, AutomountServiceAccountToken: new(false),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}},
		},
	}
}

// create creates an object. An existing object is accepted, because servers share their storage, except in a cluster
// that is somebody else's. A storage that is slow for a moment is tried again.
func (b *builder) create(ctx context.Context, o object) error {
	attempts := 0
	err := retry.OnError(
		retry.DefaultBackoff,
		func(err error) bool { return apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) },
		func() error {
			attempts++
			return b.send(ctx, o)
		},
	)
	mayBeThere := attempts > 1 || !b.Shared
	if err == nil {
		return nil
	}
	if mayBeThere && apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("creating the %s %s: %w", strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1."), o.GetName(), err)
}

func (b *builder) send(ctx context.Context, o object) (err error) {
	core, rbac, none := b.client.CoreV1(), b.client.RbacV1(), metav1.CreateOptions{}
	switch o := o.(type) {
	case *corev1.Namespace:
		_, err = core.Namespaces().Create(ctx, o, none)
	case *corev1.Node:
		_, err = core.Nodes().Create(ctx, o, none)
	case *corev1.Pod:
		_, err = core.Pods(o.Namespace).Create(ctx, o, none)
	case *corev1.ServiceAccount:
		_, err = core.ServiceAccounts(o.Namespace).Create(ctx, o, none)
	case *rbacv1.ClusterRole:
		_, err = rbac.ClusterRoles().Create(ctx, o, none)
	case *rbacv1.ClusterRoleBinding:
		_, err = rbac.ClusterRoleBindings().Create(ctx, o, none)
	default:
		err = errors.New("it is of no kind that agents need")
	}
	return err
}

func (b *builder) tokens(ctx context.Context, variant profile.Variant, i int) (tokens []string, _ error) {
	ns, name := space(variant), agentName(i)
	_, account := sender(b.profile, i)
	life := int64(max(tokenLife, 2*b.profile.Length()) / time.Second)
	for range b.profile.TokensPerAgent {
		answer, err := b.client.CoreV1().
			ServiceAccounts(ns).
			CreateToken(ctx, account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: &life,
				BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name},
			}}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("token of %s/%s: %w", ns, name, err)
		}
		// A server may give a shorter time than was requested (--service-account-max-token-expiration).
		if left := time.Until(answer.Status.ExpirationTimestamp.Time); left < b.profile.Length() {
			return nil, fmt.Errorf(
				"the API server gives tokens for %s, and the blocks of the profile take %s: the agents' would expire",
				left.Round(time.Second),
				b.profile.Length(),
			)
		}
		tokens = append(tokens, answer.Status.Token)
	}
	return tokens, nil
}

// grant gives a variant its permissions as RBAC. With the first variant it also gives those that everybody has.
func (b *builder) grant(ctx context.Context, variant profile.Variant, first bool) error {
	for _, g := range Grants(variant) {
		name := "storm:" + variant.Name + ":" + g.ID
		if g.ID == "read" {
			if name = "storm:read"; !first {
				continue
			}
		}
		err := errors.Join(b.create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: meta("", name),
			Rules:      []rbacv1.PolicyRule{{Verbs: g.Verbs, APIGroups: g.APIGroups, Resources: g.Resources}},
		}), b.create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta("", name),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: g.Subject.Group}},
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

//go:embed grants.yaml
var grantsYAML []byte

var grants = fixtures.Table[map[string][]scenarios.Grant]("grants.yaml", grantsYAML)

// Grants returns the permissions of a variant's agents. The first is what everybody has: to read pods.
func Grants(variant profile.Variant) []scenarios.Grant {
	list := slices.Clone(grants["everybody"])
	for _, name := range variant.Grants {
		list = append(list, grants[name]...)
	}
	for i := range list {
		if list[i].Subject == (scenarios.Subject{}) {
			list[i].Subject.Group = "system:serviceaccounts:" + space(variant)
		}
	}
	return list
}
