package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// join uses the keys of the control plane whose etcd is used, and links that etcd's socket into this one's folder.
func (c *ControlPlane) join() error {
	if err := c.owner.admit(c); err != nil {
		return fmt.Errorf("joining a control plane: %w", err)
	}
	// Only within the folder is the path of a socket short.
	link := filepath.Join(c.run.path, etcdSocket)
	if err := os.Symlink(filepath.Join(c.owner.run.path, etcdSocket), link); err != nil {
		return folderError("state folder", c.run.path, StateVariable, err)
	}
	return c.writeKeys(c.owner.pki)
}

// admit remembers a control plane that must be informed when etcd is gone.
func (c *ControlPlane) admit(joined *ControlPlane) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case c.err != nil:
		return fmt.Errorf("it has broken: %w", c.err)
	}
	c.joined[joined] = true
	return nil
}

func (c *ControlPlane) dismiss(joined *ControlPlane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.joined, joined)
}

func (c *ControlPlane) others() []*ControlPlane {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.joined))
}

// etcdLost informs all who use this etcd that it is gone for good.
func (c *ControlPlane) etcdLost(err error) {
	c.fail(err)
	for _, other := range c.others() {
		other.fail(err)
	}
}

// leave informs the remaining users that their etcd ends.
func (c *ControlPlane) leave() {
	for _, other := range c.others() {
		if other.ctx.Err() == nil {
			other.fail(fmt.Errorf("the etcd of another control plane was in use, and that one ended first: %w", ErrStopped))
		}
	}
}

// awaitServers waits until every API server on this etcd is ready, except those that do not run.
func (c *ControlPlane) awaitServers(ctx context.Context) error {
	for _, user := range append([]*ControlPlane{c}, c.others()...) {
		p := guarded(&user.mu, &user.apiServer)
		if p == nil || p.hasExited() || p.stopRequested() {
			continue
		}
		err := user.waitReady(ctx, p)
		// It may have been ended on purpose meanwhile, which its owner knows.
		stopped := user != c && errors.Is(err, ErrStopped)
		if isGone := stopped || p.stopRequested(); isGone {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// KillAPIServer kills kube-apiserver (SIGKILL) on purpose, so that Err and Done do not report it. RestartAPIServer
// starts one again on the same port; both together are a restart without an orderly end. If none runs, nothing happens.
// If the API server has ended by itself, that is an error, because Err has reported it.
func (c *ControlPlane) KillAPIServer() error {
	c.life.Lock()
	defer c.life.Unlock()
	if err := c.whole(); err != nil {
		return fmt.Errorf("the API server cannot be killed: %w", err)
	}
	return c.apiServer.stop(0)
}

// RestartEtcd kills etcd (SIGKILL), starts it again on its data, and returns when every running API server that uses it
// is ready again. It does not wait for one that was killed or is restarting. No answered write is lost, because the
// kernel has what etcd has written. On a control plane that has joined another, it restarts that one's etcd.
//
// If etcd does not start again, all control planes that use it are broken, and Err reports it. If it does, but an API
// server is not ready in time, only the returned error says so.
func (c *ControlPlane) RestartEtcd(ctx context.Context) error {
	if c.owner != c {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		return c.owner.RestartEtcd(ctx)
	}
	c.life.Lock()
	defer c.life.Unlock()
	if err := c.whole(); err != nil {
		return fmt.Errorf("etcd cannot be restarted: %w", err)
	}
	ctx, cancel := withReadyTimeout(ctx, c.opts)
	defer cancel()
	if err := c.replaceEtcd(ctx); err != nil {
		if c.ctx.Err() == nil {
			c.etcdLost(err)
		}
		return err
	}
	return c.awaitServers(ctx)
}

func (c *ControlPlane) replaceEtcd(ctx context.Context) error {
	if err := c.etcd.stop(0); err != nil {
		return err
	}
	// A killed etcd leaves its socket, which would look as if the next one listened.
	if err := os.Remove(filepath.Join(c.run.path, etcdSocket)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := c.startEtcd(c.etcd.cmd.Path); err != nil {
		return err
	}
	return c.waitEtcd(ctx)
}

// whole returns why the processes cannot be changed: Stop has been called, or one ended by itself.
func (c *ControlPlane) whole() error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	return c.Err()
}

// Storage is the etcd of a control plane without the API server in front of it. It is for writing more objects than an
// API server accepts in reasonable time. Nothing checks what is written.
type Storage struct {
	client *clientv3.Client
}

const storageTimeout = 30 * time.Second

// transaction is how many keys are written at once. etcd accepts 128 (--max-txn-ops).
const transaction = 100

// Storage connects to etcd. The caller has to close the result.
func (c *ControlPlane) Storage() (*Storage, error) {
	socket := filepath.Join(c.owner.run.path, etcdSocket)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"passthrough:///etcd"}, DialTimeout: storageTimeout,
		DialOptions: []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()), // only this user can open the socket's folder
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

// Sizes returns the size in bytes of every value, by its key.
func (s *Storage) Sizes(ctx context.Context) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, storageTimeout)
	defer cancel()
	answer, err := s.client.Get(ctx, "", clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("reading all keys of etcd: %w", err)
	}
	sizes := map[string]int{}
	for _, pair := range answer.Kvs {
		sizes[string(pair.Key)] = len(pair.Value)
	}
	return sizes, nil
}

// Pair is a key and its value.
type Pair struct {
	Key   string
	Value []byte
}

// Add writes keys that do not exist yet. Existing keys keep their value.
func (s *Storage) Add(ctx context.Context, pairs []Pair) error {
	for chunk := range slices.Chunk(pairs, transaction) {
		if err := s.addTogether(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

func (s *Storage) addTogether(ctx context.Context, pairs []Pair) error {
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
	if answer.Succeeded || len(pairs) == 1 { // or it is there
		return nil
	}
	for _, p := range pairs {
		if err := s.addTogether(ctx, []Pair{p}); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the connection.
func (s *Storage) Close() error { return s.client.Close() }
