package server

import (
	"context"
	"fmt"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/reports"
)

// ReplaceNodes gives all nodes the kubelets of a version, out of a node image if one is named, and makes the target the one
// that o asks for, which has the same API server. The witness is read anew. Nobody else may use the target meanwhile, but
// through the API server.
func (s *Server) ReplaceNodes(ctx context.Context, version, image string, o Options) error {
	s.users.Lock()
	defer s.users.Unlock()
	replacer, replaces := s.cluster.(clusters.NodeReplacer)
	if !replaces {
		return fmt.Errorf("the nodes of a cluster of the provider %s cannot be replaced", s.Cell.Provider)
	}
	if err := replacer.ReplaceKubelets(ctx, version, image); err != nil {
		return err
	}
	s.Cell, s.started = o.Cell, o
	s.Witness, s.last = reports.Witness{}, nil
	return s.witness(ctx, o)
}
