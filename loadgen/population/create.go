package population

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/scenarios"
)

// Population is what was created. It holds tokens: it is not for printing.
type Population struct {
	// Tokens are those of each identity of each arm, by the arm's name.
	Tokens map[string][][]string

	settle map[string]string // a token of an agent that takes no part
}

const (
	// atOnce is how many objects are created at the same time: enough to keep an
	// API server busy that waits for its storage.
	atOnce = 32
	// tokenSeconds outlives a run.
	tokenSeconds = 24 * 60 * 60
)

// builder creates objects in parallel.
type builder struct {
	client   kubernetes.Interface
	profile  *profile.Profile
	done     atomic.Int64
	total    int64
	progress func(done, total int64)
}

// Create creates everything. The client's own limit of requests should be off.
// progress, if given, is called from several goroutines.
func Create(ctx context.Context, admin *rest.Config, p *profile.Profile, progress func(done, total int64)) (*Population, error) {
	admin = rest.CopyConfig(admin)
	admin.ContentType, admin.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	b := &builder{client: client, profile: p, progress: progress}
	nodes := p.Agents + 1
	b.total = int64(nodes + nodes*p.PodsPerNode)
	arms := make([]profile.Arm, 0, len(p.Used()))
	for _, name := range p.Used() {
		arm, err := profile.ArmNamed(name)
		if err != nil {
			return nil, err
		}
		arms = append(arms, arm)
		b.total += int64(p.Identities(arm) + 1)
	}
	if err := b.namespace(ctx, podSpace); err != nil {
		return nil, err
	}
	for _, arm := range arms {
		if err := errors.Join(b.namespace(ctx, space(arm)), b.grant(ctx, arm)); err != nil {
			return nil, err
		}
	}
	// Nodes first: a token has the UID of its node only if that is there.
	if err := b.each(ctx, nodes, b.node); err != nil {
		return nil, err
	}
	if err := b.each(ctx, nodes*p.PodsPerNode, func(ctx context.Context, i int) error {
		return b.pod(ctx, podSpace, podName(i/p.PodsPerNode, i%p.PodsPerNode), i/p.PodsPerNode, "")
	}); err != nil {
		return nil, err
	}
	out := &Population{Tokens: map[string][][]string{}, settle: map[string]string{}}
	for _, arm := range arms {
		tokens := make([][]string, p.Identities(arm)+1)
		if err := b.each(ctx, len(tokens), func(ctx context.Context, i int) (err error) {
			tokens[i], err = b.agent(ctx, arm, i)
			return err
		}); err != nil {
			return nil, err
		}
		last := len(tokens) - 1
		out.Tokens[arm.Name], out.settle[arm.Name] = tokens[:last], tokens[last][0]
	}
	return out, nil
}

// each calls f with 0 to n-1, several at a time, until one fails.
func (b *builder) each(ctx context.Context, n int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(atOnce, n) {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(ctx, i); err != nil {
					cancel(err)
					return
				}
				if done := b.done.Add(1); b.progress != nil {
					b.progress(done, b.total)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{labelKey: "true"}}
}

// made passes what was there already: a run may take up where another was killed.
func made(err error, what string, args ...any) error {
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("creating "+what+": %w", append(args, err)...)
}

func (b *builder) namespace(ctx context.Context, name string) error {
	_, err := b.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta("", name)}, metav1.CreateOptions{})
	return made(err, "namespace %s", name)
}

func (b *builder) node(ctx context.Context, i int) error {
	_, err := b.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: meta("", nodeName(i))}, metav1.CreateOptions{})
	return made(err, "node %s", nodeName(i))
}

// pod creates one that is on a node, which no kubelet has to know.
func (b *builder) pod(ctx context.Context, namespace, name string, node int, account string) error {
	_, err := b.client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: meta(namespace, name),
		Spec: corev1.PodSpec{
			NodeName: nodeName(node), ServiceAccountName: account,
			Containers: []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}},
		},
	}, metav1.CreateOptions{})
	return made(err, "pod %s/%s", namespace, name)
}

// agent creates one agent of an arm: its account, its pod, its tokens.
func (b *builder) agent(ctx context.Context, arm profile.Arm, i int) ([]string, error) {
	ns, name := space(arm), agentName(i)
	accounts := b.client.CoreV1().ServiceAccounts(ns)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta(ns, name)}, metav1.CreateOptions{})
	if err := made(err, "service account %s/%s", ns, name); err != nil {
		return nil, err
	}
	if err := b.pod(ctx, ns, name, i, name); err != nil {
		return nil, err
	}
	var tokens []string
	life := int64(tokenSeconds)
	for range b.profile.TokensPerAgent {
		answer, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: &life,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name},
		}}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("token of %s/%s: %w", ns, name, err)
		}
		tokens = append(tokens, answer.Status.Token)
	}
	return tokens, nil
}

// grant gives an arm its permissions, as RBAC.
func (b *builder) grant(ctx context.Context, arm profile.Arm) error {
	for _, g := range Grants(arm) {
		name := "storm:" + arm.Name + ":" + g.ID
		if g.ID == "read" {
			name = "storm:read"
		}
		_, err := b.client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: meta("", name),
			Rules:      []rbacv1.PolicyRule{{Verbs: g.Verbs, APIGroups: g.APIGroups, Resources: g.Resources}},
		}, metav1.CreateOptions{})
		if err := made(err, "role %s", name); err != nil {
			return err
		}
		_, err = b.client.RbacV1().ClusterRoleBindings().Create(ctx, binding(name, g), metav1.CreateOptions{})
		if err := made(err, "binding %s", name); err != nil {
			return err
		}
	}
	return nil
}

func binding(name string, g scenarios.Grant) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta("", name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: g.Subject.Group}},
	}
}
