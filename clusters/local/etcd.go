package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// join takes the keys of the control plane whose etcd is used, and puts that etcd's socket into this one's folder.
func (c *ControlPlane) join() error {
	if err := c.owner.admit(c); err != nil {
		return fmt.Errorf("joining a control plane: %w", err)
	}
	// The path of a socket is short only in the folder itself.
	link := filepath.Join(c.run.path, etcdSocket)
	if err := os.Symlink(filepath.Join(c.owner.run.path, etcdSocket), link); err != nil {
		return folderError("state folder", c.run.path, StateVariable, err)
	}
	return c.writeKeys(c.owner.pki)
}

// admit remembers who has to be told when etcd is gone.
func (c *ControlPlane) admit(joined *ControlPlane) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case c.err != nil:
		return fmt.Errorf("it has broken: %w", c.err)
	}
	if c.joined == nil {
		c.joined = map[*ControlPlane]bool{}
	}
	c.joined[joined] = true
	return nil
}

func (c *ControlPlane) dismiss(joined *ControlPlane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.joined, joined)
}

// others are the control planes that use this one's etcd.
func (c *ControlPlane) others() []*ControlPlane {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.joined))
}

// etcdLost tells all who use this etcd that it is gone for good.
func (c *ControlPlane) etcdLost(err error) {
	c.fail(err)
	for _, other := range c.others() {
		other.fail(err)
	}
}

// leave tells those who stay behind that their etcd ends.
func (c *ControlPlane) leave() {
	for _, other := range c.others() {
		if other.ctx.Err() == nil {
			other.fail(fmt.Errorf("the etcd of another control plane was in use, and that one ended first: %w", ErrStopped))
		}
	}
}

// awaitServers waits until every API server on this etcd is ready, but for those that do not run.
func (c *ControlPlane) awaitServers(ctx context.Context) error {
	for _, user := range append([]*ControlPlane{c}, c.others()...) {
		p := guarded(&user.mu, &user.apiServer)
		if p == nil || p.exited() || p.stopRequested() {
			continue
		}
		err := user.waitReady(ctx, p)
		// It may have been ended on purpose meanwhile, which is for its owner to know.
		if gone := p.stopRequested() || (user != c && errors.Is(err, ErrStopped)); err != nil && !gone {
			return err
		}
	}
	return nil
}

// KillAPIServer kills kube-apiserver (SIGKILL) on purpose: Err and Done do not tell of it. RestartAPIServer brings
// one up again, on the same port; the two together are a restart without an orderly end. One that does not run
// stays so. An API server that has ended by itself is an error, for then Err has told of it.
func (c *ControlPlane) KillAPIServer() error {
	c.life.Lock()
	defer c.life.Unlock()
	if err := c.whole(); err != nil {
		return fmt.Errorf("the API server cannot be killed: %w", err)
	}
	return c.apiServer.stop(0)
}

// RestartEtcd kills etcd (SIGKILL), starts it again on its data, and returns when every API server
// that uses it and runs is ready again; one that was killed or is being restarted is not waited
// for. Nothing that was answered is lost: what etcd has written is the kernel's. Called on a
// control plane that has joined another, it restarts that one's etcd.
//
// If etcd does not come up again, all control planes that use it are broken: Err tells of it. If
// it does and an API server does not get ready in time, only the error says so.
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
	// A killed etcd leaves its socket, which would say that the next one listens.
	if err := os.Remove(filepath.Join(c.run.path, etcdSocket)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := c.startEtcd(c.etcd.cmd.Path); err != nil {
		return err
	}
	return c.waitEtcd(ctx)
}

// whole tells why the processes cannot be changed: Stop has been called, or one ended by itself.
func (c *ControlPlane) whole() error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	return c.Err()
}
