package upgrade

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/server"
)

// replaceNodes gives all nodes the kubelets of a stage. The API server is a static pod, which a kubelet of another minor starts
// anew: the balancer takes it out as long as it is not ready.
func (u *Upgrade) replaceNodes(ctx context.Context, stage *Stage) error {
	release, err := local.ParseRelease(stage.Nodes)
	if err != nil {
		return err
	}
	t := u.targets[stage.Server]
	begin := time.Now()
	unwatch := u.watchHealth(ctx, t)
	err = t.ReplaceNodes(ctx, release.Version, stage.NodeImage, stage.Target)
	unwatch()
	if err != nil {
		return err
	}
	history, now := u.histories[stage.Server], time.Now()
	last := &history[len(history)-1]
	last.Ended = now
	if t.Replaced().After(begin) {
		last.Ended = t.Replaced()
	}
	u.histories[stage.Server] = append(history, FlowStay{Cell: stage.Name(), Ready: now})
	return nil
}

const (
	healthPoll    = 50 * time.Millisecond
	healthTimeout = time.Second
)

// watchHealth has the balancer send requests to an API server as long as that says that it is ready, as one with health checks
// does, until the function that it returns is called.
func (u *Upgrade) watchHealth(ctx context.Context, t *server.Server) (stop func()) {
	if u.balancer == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() {
		for clusters.Pause(ctx, healthPoll) {
			if u.isReady(ctx, t) {
				u.balancer.Set(u.addresses()...)
			} else {
				u.balancer.Set()
			}
		}
		u.balancer.Set(u.addresses()...)
	})
	return func() { cancel(); ended.Wait() }
}

// isReady reports whether an API server says that it is ready.
func (u *Upgrade) isReady(ctx context.Context, t *server.Server) bool {
	client, err := kubernetes.NewForConfig(t.Admin())
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil
}

// nodeTarget returns the options of a cluster with the nodes of a stage, as far as its node image goes.
func (s *StagePlan) nodeTarget() (server.Options, error) {
	release, err := local.ParseRelease(s.Nodes)
	o := s.Target
	o.Release, o.NodeImage, o.Workers = release, s.NodeImage, nil
	return o, err
}
