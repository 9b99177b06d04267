package local

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Storage is a control plane's etcd, without the API server before it: for writing more objects than an API server
// takes in a time that anybody waits. Nothing checks what is written.
type Storage struct {
	client *clientv3.Client
}

// storageTimeout is how long etcd may take to answer.
const storageTimeout = 30 * time.Second

// transaction is how many keys are written at once: etcd takes 128 (--max-txn-ops).
const transaction = 100

// Storage connects to etcd. Close the result.
func (c *ControlPlane) Storage() (*Storage, error) {
	socket := filepath.Join(c.owner.run.path, etcdSocket)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"passthrough:///etcd"}, DialTimeout: storageTimeout,
		DialOptions: []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()), // the socket is in a folder for this user alone
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			}),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	return &Storage{client: client}, nil
}

// Get reads the value of a key.
func (s *Storage) Get(ctx context.Context, key string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, storageTimeout)
	defer cancel()
	answer, err := s.client.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading %s from etcd: %w", key, err)
	}
	if len(answer.Kvs) != 1 {
		return nil, fmt.Errorf("reading %s from etcd: it is not there", key)
	}
	return answer.Kvs[0].Value, nil
}

// Pair is a key and its value.
type Pair struct {
	Key   string
	Value []byte
}

// Add writes keys that are not there yet; those that are keep their value.
func (s *Storage) Add(ctx context.Context, pairs []Pair) error {
	for len(pairs) > 0 {
		n := min(transaction, len(pairs))
		if err := s.add(ctx, pairs[:n]); err != nil {
			return err
		}
		pairs = pairs[n:]
	}
	return nil
}

func (s *Storage) add(ctx context.Context, pairs []Pair) error {
	ctx, cancel := context.WithTimeout(ctx, storageTimeout)
	defer cancel()
	var absent []clientv3.Cmp
	var puts []clientv3.Op
	for _, p := range pairs {
		absent = append(absent, clientv3.Compare(clientv3.CreateRevision(p.Key), "=", 0))
		puts = append(puts, clientv3.OpPut(p.Key, string(p.Value)))
	}
	answer, err := s.client.Txn(ctx).If(absent...).Then(puts...).Commit()
	if err != nil {
		return fmt.Errorf("writing to etcd: %w", err)
	}
	if answer.Succeeded {
		return nil
	}
	if len(pairs) == 1 {
		return nil // it is there
	}
	for _, p := range pairs {
		if err := s.add(ctx, []Pair{p}); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the connection.
func (s *Storage) Close() error { return s.client.Close() }
