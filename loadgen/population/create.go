package population

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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
	// Tokens are those of each identity of each variant, by the variant's name.
	Tokens map[string][][]string

	settle map[string]string // a token of an agent that takes no part
}

const (
	// atOnce is how many objects are created at the same time: enough to keep an
	// API server busy that waits for its storage.
	atOnce = 32
	// tokenLife is how long tokens are good for at least.
	tokenLife = 24 * time.Hour
)

// builder creates objects in parallel.
type builder struct {
	client   kubernetes.Interface
	profile  *profile.Profile
	storage  Storage // nil: everything goes through the API
	total    int64
	progress func(done, total int64)

	counting sync.Mutex
	done     int64
}

// Create creates everything. The client's own limit of requests should be off.
// With storage most objects are written there. progress, if given, is called by one
// goroutine at a time, with numbers that grow.
func Create(ctx context.Context, admin *rest.Config, p *profile.Profile, storage Storage, progress func(done, total int64)) (*Population, error) {
	admin = rest.CopyConfig(admin)
	admin.ContentType, admin.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	b := &builder{client: client, profile: p, storage: storage, progress: progress}
	nodes := p.Agents + 1
	b.total = int64(nodes + nodes*p.PodsPerNode)
	variants := make([]profile.Variant, 0, len(p.Used()))
	for _, name := range p.Used() {
		variant, err := profile.VariantNamed(name)
		if err != nil {
			return nil, err
		}
		variants = append(variants, variant)
		b.total += 3 * int64(p.Identities(variant)+1)
	}
	if err := b.namespace(ctx, podSpace); err != nil {
		return nil, err
	}
	for _, variant := range variants {
		if err := errors.Join(b.namespace(ctx, space(variant)), b.grant(ctx, variant)); err != nil {
			return nil, err
		}
	}
	// Nodes first: a token has the UID of its node only if that is there.
	if err := b.nodes(ctx, nodes); err != nil {
		return nil, err
	}
	if err := b.pods(ctx, nodes); err != nil {
		return nil, err
	}
	out := &Population{Tokens: map[string][][]string{}, settle: map[string]string{}}
	for _, variant := range variants {
		tokens := make([][]string, p.Identities(variant)+1)
		if err := b.agents(ctx, variant, len(tokens)); err != nil {
			return nil, err
		}
		if err := b.each(ctx, len(tokens), func(ctx context.Context, i int) (err error) {
			tokens[i], err = b.tokens(ctx, variant, i)
			return err
		}); err != nil {
			return nil, err
		}
		last := len(tokens) - 1
		out.Tokens[variant.Name], out.settle[variant.Name] = tokens[:last], tokens[last][0]
	}
	return out, nil
}

// each calls f with 0 to n-1, several at a time, until one fails, and counts them.
func (b *builder) each(ctx context.Context, n int, f func(context.Context, int) error) error {
	return b.parallel(ctx, n, func(ctx context.Context, i int) error {
		if err := f(ctx, i); err != nil {
			return err
		}
		b.count(1)
		return nil
	})
}

// count counts what was created.
func (b *builder) count(n int64) {
	b.counting.Lock()
	defer b.counting.Unlock()
	if b.done += n; b.progress != nil {
		b.progress(b.done, b.total)
	}
}

// parallel calls f with 0 to n-1, several at a time, until one fails.
func (b *builder) parallel(ctx context.Context, n int, f func(context.Context, int) error) error {
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

// nodes creates all nodes. No kubelet has to know them: see docs/load.md.
func (b *builder) nodes(ctx context.Context, n int) error {
	return b.all(ctx, copies{
		n: n,
		create: func(ctx context.Context, i int) error {
			_, err := b.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: meta("", nodeName(i))}, metav1.CreateOptions{})
			return made(err, "node %s", nodeName(i))
		},
		key:   func(i int) string { return "minions/" + nodeName(i) },
		alter: func(o object, i int) { o.SetName(nodeName(i)) },
	})
}

// pods creates those that agents ask for.
func (b *builder) pods(ctx context.Context, nodes int) error {
	each := b.profile.PodsPerNode
	name := func(i int) string { return podName(i/each, i%each) }
	return b.all(ctx, copies{
		n:      nodes * each,
		create: func(ctx context.Context, i int) error { return b.pod(ctx, podSpace, name(i), i/each, "") },
		key:    func(i int) string { return "pods/" + podSpace + "/" + name(i) },
		alter: func(o object, i int) {
			o.SetName(name(i))
			o.(*corev1.Pod).Spec.NodeName = nodeName(i / each)
		},
	})
}

// pod creates one that is on a node, which no kubelet has to know. On a cluster
// whose controllers find out that the node is not alive it stays all the same.
func (b *builder) pod(ctx context.Context, namespace, name string, node int, account string) error {
	noToken := false
	_, err := b.client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: meta(namespace, name),
		Spec: corev1.PodSpec{
			NodeName: nodeName(node), ServiceAccountName: account, AutomountServiceAccountToken: &noToken,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}},
		},
	}, metav1.CreateOptions{})
	return made(err, "pod %s/%s", namespace, name)
}

// agents creates the accounts of a variant's agents, and their pods.
func (b *builder) agents(ctx context.Context, variant profile.Variant, n int) error {
	ns := space(variant)
	if err := b.all(ctx, copies{
		n: n,
		create: func(ctx context.Context, i int) error {
			_, err := b.client.CoreV1().ServiceAccounts(ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta(ns, agentName(i))}, metav1.CreateOptions{})
			return made(err, "service account %s/%s", ns, agentName(i))
		},
		key:   func(i int) string { return "serviceaccounts/" + ns + "/" + agentName(i) },
		alter: func(o object, i int) { o.SetName(agentName(i)) },
	}); err != nil {
		return err
	}
	return b.all(ctx, copies{
		n:      n,
		create: func(ctx context.Context, i int) error { return b.pod(ctx, ns, agentName(i), i, agentName(i)) },
		key:    func(i int) string { return "pods/" + ns + "/" + agentName(i) },
		alter: func(o object, i int) {
			o.SetName(agentName(i))
			spec := &o.(*corev1.Pod).Spec
			spec.NodeName, spec.ServiceAccountName, spec.DeprecatedServiceAccount = nodeName(i), agentName(i), agentName(i)
		},
	})
}

// tokens asks for those of an agent.
func (b *builder) tokens(ctx context.Context, variant profile.Variant, i int) ([]string, error) {
	ns, name := space(variant), agentName(i)
	var tokens []string
	life := int64(max(tokenLife, 2*b.profile.Length()) / time.Second)
	for range b.profile.TokensPerAgent {
		answer, err := b.client.CoreV1().ServiceAccounts(ns).CreateToken(ctx, name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: &life,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name},
		}}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("token of %s/%s: %w", ns, name, err)
		}
		// A server may give less than was asked for (--service-account-max-token-expiration).
		if left := time.Until(answer.Status.ExpirationTimestamp.Time); left < b.profile.Length() {
			return nil, fmt.Errorf("the API server gives tokens for %s, and the blocks of the profile take %s: the agents' would expire", left.Round(time.Second), b.profile.Length())
		}
		tokens = append(tokens, answer.Status.Token)
	}
	return tokens, nil
}

// grant gives a variant its permissions, as RBAC.
func (b *builder) grant(ctx context.Context, variant profile.Variant) error {
	for _, g := range Grants(variant) {
		name := "storm:" + variant.Name + ":" + g.ID
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
