package population

import (
	"bytes"
	"context"
	"fmt"
	"time"

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

// copies are many objects that differ from one in their names, and in little else.
type copies struct {
	n int
	// create makes object i through the API.
	create func(ctx context.Context, i int) error
	// key is where the API server stores object i, below /registry.
	key func(i int) string
	// alter makes object i of object 0: its name, and what follows from it. Its UID is seen to.
	alter func(o object, i int)
}

// all creates the objects: through the API, or, where the storage can be reached, the first through the API, and
// the others as copies of what the API server stored. kube-apiserver takes a millisecond of processor time for
// each object, which for the 150,000 pods of 5,000 nodes is minutes.
func (b *builder) all(ctx context.Context, c copies) error {
	if b.storage == nil || c.n < 2 {
		return b.each(ctx, c.n, c.create)
	}
	if err := c.create(ctx, 0); err != nil {
		return err
	}
	b.count(1)
	stored, err := b.storage.Get(ctx, "/registry/"+c.key(0))
	if err != nil {
		return err
	}
	codec := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	decoded, kind, err := codec.Decode(stored, nil, nil)
	if err != nil {
		return fmt.Errorf("what the API server stored as %s: %w", c.key(0), err)
	}
	first, ok := decoded.(object)
	if !ok {
		return fmt.Errorf("what the API server stored as %s is a %T", c.key(0), decoded)
	}
	batches := (c.n - 1 + batch - 1) / batch
	return b.parallel(ctx, batches, func(ctx context.Context, i int) error {
		from := 1 + i*batch
		to := min(from+batch, c.n)
		pairs := make([]local.Pair, 0, to-from)
		for n := from; n < to; n++ {
			o := first.DeepCopyObject().(object)
			o.GetObjectKind().SetGroupVersionKind(*kind)
			o.SetUID(uuid.NewUUID())
			o.SetCreationTimestamp(metav1.NewTime(time.Now()))
			c.alter(o, n)
			var value bytes.Buffer
			if err := codec.Encode(o, &value); err != nil {
				return err
			}
			pairs = append(pairs, local.Pair{Key: "/registry/" + c.key(n), Value: value.Bytes()})
		}
		if err := b.storage.Add(ctx, pairs); err != nil {
			return err
		}
		b.count(int64(to - from))
		return nil
	})
}
