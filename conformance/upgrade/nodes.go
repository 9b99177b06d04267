package upgrade

import (
	"context"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/server"
)

// replaceNodes gives all nodes the kubelets of a stage, while the API server goes on.
func (u *Upgrade) replaceNodes(ctx context.Context, stage *Stage) error {
	release, err := local.ParseRelease(stage.Nodes)
	if err != nil {
		return err
	}
	if err := u.targets[stage.Server].ReplaceNodes(ctx, release.Version, stage.NodeImage, stage.Target); err != nil {
		return err
	}
	history, now := u.histories[stage.Server], time.Now()
	history[len(history)-1].Ended = now
	u.histories[stage.Server] = append(history, FlowStay{Cell: stage.Name(), Ready: now})
	return nil
}

// nodeTarget returns the options of a cluster with the nodes of a stage, as far as its node image goes.
func (s *StagePlan) nodeTarget() (server.Options, error) {
	release, err := local.ParseRelease(s.Nodes)
	o := s.Target
	o.Release, o.NodeImage, o.Workers = release, s.NodeImage, nil
	return o, err
}
