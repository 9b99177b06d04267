package population

import (
	"bytes"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/authzconf/authzconf/clusters/local"
)

// Storage is the etcd of a control plane; local.Storage is one.
type Storage interface {
	Get(ctx context.Context, key string) ([]byte, error)
	Add(ctx context.Context, pairs []local.Pair) error
}

// batch is how many objects are written by one goroutine before it counts them.
const batch = 500

// object is a typed object of the API.
type object interface {
	metav1.Object
	runtime.Object
}

// all creates n objects that differ from the first in their names and in little else: through the API, or, where the
// storage can be reached, the first through the API, and the others as copies of what the API server stored, below
// /registry/prefix. kube-apiserver takes a millisecond of processor time for each object, which for the 150,000 pods
// of 5,000 nodes is minutes.
func (b *builder) all(ctx context.Context, n int, prefix string, build func(i int) object) error {
	if b.Storage == nil || n < 2 {
		return b.each(ctx, n, func(ctx context.Context, i int) error { return b.create(ctx, build(i)) })
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
func alter(o, wanted object) {
	o.SetName(wanted.GetName())
	if p, ok := o.(*corev1.Pod); ok {
		spec := wanted.(*corev1.Pod).Spec
		p.Spec.NodeName = spec.NodeName
		if account := spec.ServiceAccountName; account != "" {
			p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount = account, account
		}
	}
}
