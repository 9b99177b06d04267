package population

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/profile"
)

// Storage is the etcd of a control plane; local.Storage is one.
type Storage interface {
	Get(ctx context.Context, key string) ([]byte, error)
	Add(ctx context.Context, pairs []local.Pair) error
}

// batch is how many objects a goroutine writes before it counts them.
const batch = 500

type object interface {
	metav1.Object
	runtime.Object
}

// createAll creates n objects that differ from the first in their names and in little else. It creates them through the
// API. If the storage can be reached, it creates only the first through the API, and the others below /registry/prefix
// as copies of what the API server stored, because kube-apiserver takes a millisecond for each, and so minutes for the
// 150,000 pods of 5,000 nodes.
func (b *builder) createAll(ctx context.Context, n int, prefix string, build func(i int) object) error {
	if b.Storage == nil || n < 2 {
		return b.forEach(ctx, n, func(ctx context.Context, i int) error { return b.create(ctx, build(i)) })
	}
	if err := b.create(ctx, build(0)); err != nil {
		return err
	}
	b.count(1)
	key := "/registry/" + prefix + build(0).GetName()
	stored, err := b.Storage.Get(ctx, key)
	if err != nil {
		return err
	}
	codec := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	decoded, kind, err := codec.Decode(stored, nil, nil)
	if err != nil {
		return fmt.Errorf("what the API server stored as %s: %w", key, err)
	}
	first, ok := decoded.(object)
	if !ok {
		return fmt.Errorf("what the API server stored as %s is a %T", key, decoded)
	}
	batches := (n - 1 + batch - 1) / batch
	return parallel(ctx, batches, func(ctx context.Context, i int) error {
		var pairs []local.Pair
		for at := 1 + i*batch; at < min(1+(i+1)*batch, n); at++ {
			o := first.DeepCopyObject().(object)
			o.GetObjectKind().SetGroupVersionKind(*kind)
			o.SetUID(uuid.NewUUID())
			o.SetCreationTimestamp(metav1.NewTime(time.Now()))
			alter(o, build(at))
			var value bytes.Buffer
			if err := codec.Encode(o, &value); err != nil {
				return err
			}
			pairs = append(pairs, local.Pair{Key: "/registry/" + prefix + o.GetName(), Value: value.Bytes()})
		}
		if err := b.Storage.Add(ctx, pairs); err != nil {
			return err
		}
		b.count(int64(len(pairs)))
		return nil
	})
}

// alter turns a copy of the first object into the wanted one, whose defaults the API server has not set.
func alter(o, want object) {
	o.SetName(want.GetName())
	if p, ok := o.(*corev1.Pod); ok {
		spec := want.(*corev1.Pod).Spec
		p.Spec.NodeName = spec.NodeName
		if account := spec.ServiceAccountName; account != "" {
			p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount = account, account
		}
	}
}

// settleTimeout is how long it may take until the permissions of a variant are in force everywhere. settlePoll is the
// pause between two attempts.
const settleTimeout, settlePoll = 30 * time.Second, 50 * time.Millisecond

// Settle waits until a server gives the expected answers to all variants that are used on it. It asks as an agent that
// takes no part, so that the server knows none of the others afterwards.
func (o *Population) Settle(ctx context.Context, anonymous *rest.Config, p *profile.Profile, server profile.Server) error {
	client, err := rest.HTTPClientFor(anonymous)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for _, variant := range p.Variants() {
		if !p.UsedOn(variant.Name, server) {
			continue
		}
		if err := o.settleVariant(ctx, client, anonymous.Host, p, variant); err != nil {
			return err
		}
	}
	return nil
}

func (o *Population) settleVariant(
	ctx context.Context,
	client *http.Client,
	host string,
	p *profile.Profile,
	variant profile.Variant,
) error {
	q := asking(p, variant, p.Agents())
	for kind, weight := range p.Plan(0).Mix {
		if weight == 0 || slices.Contains([]string{"watch", profile.Review, profile.Whoami}, profile.Kinds()[kind]) {
			continue
		}
		req := request(q, kind, 0, p.PodsPerNode, func(int) []string { return []string{o.settle[variant.Name]} })
		var status int
		var text string
		err := wait.PollUntilContextTimeout(ctx, settlePoll, settleTimeout, true, func(ctx context.Context) (_ bool, err error) {
			status, text, err = try(ctx, client, host, req)
			return status == Expected(variant), err
		})
		switch {
		case wait.Interrupted(err) && ctx.Err() == nil:
			return fmt.Errorf(
				"%s of the variant %s is answered with %d, not %d, after %s: %s",
				profile.Kinds()[kind],
				variant.Name,
				status,
				Expected(variant),
				settleTimeout,
				text,
			)
		case err != nil:
			return err
		}
	}
	return nil
}

func try(ctx context.Context, client *http.Client, host string, req agent.Request) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, host+req.Path+"?"+req.Query, nil)
	if err != nil {
		return 0, "", err
	}
	r.Header = req.Header
	resp, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 500))
	return resp.StatusCode, fmt.Sprintf("%q", body), err
}

// Expected is the status that a variant's answers should have.
func Expected(variant profile.Variant) int {
	if variant.Denied {
		return http.StatusForbidden
	}
	return http.StatusOK
}
