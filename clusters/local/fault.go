package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

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
