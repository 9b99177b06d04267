package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/image"
	"github.com/authzconf/authzconf/reports"
)

// ReplaceNodes gives all nodes the kubelets of a version, out of a node image if one is named, and makes the target the one
// that o asks for, which has the same API server, if in another process. The witness is read anew.
func (s *Server) ReplaceNodes(ctx context.Context, version, image string, o Options) error {
	s.users.Lock()
	defer s.users.Unlock()
	replacer, replaces := s.cluster.(clusters.NodeReplacer)
	if !replaces {
		return fmt.Errorf("the nodes of a cluster of the provider %s cannot be replaced", s.Cell.Provider)
	}
	before, err := s.began(ctx)
	if err != nil {
		return err
	}
	if err := replacer.ReplaceKubelets(ctx, version, image); err != nil {
		return err
	}
	after, err := s.began(ctx)
	if err != nil {
		return err
	}
	if after.After(before) {
		s.replaced = after // kubelets of another minor start static pods anew
	}
	s.Cell, s.started = o.Cell, o
	s.Witness, s.last = reports.Witness{}, nil
	return s.witness(ctx, o)
}

// began returns when the API server's process began.
func (s *Server) began(ctx context.Context) (time.Time, error) {
	families, err := s.Scrape(ctx, ProcessStartMetric)
	if err != nil {
		return time.Time{}, err
	}
	family := families[ProcessStartMetric]
	if len(family.GetMetric()) == 0 {
		return time.Time{}, errors.New("/metrics has no " + ProcessStartMetric)
	}
	return time.UnixMilli(int64(math.Round(1000 * family.GetMetric()[0].GetGauge().GetValue()))), nil
}

// LoadImage puts an image on every node. No nodes are an error: scenarios that need them are not selected there.
func (s *Server) LoadImage(ctx context.Context, archive []byte) error {
	nodes, ok := s.cluster.(image.Loader)
	if !ok {
		return errors.New("this cluster has no nodes to put an image on")
	}
	return nodes.LoadImage(ctx, archive)
}
