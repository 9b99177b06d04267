package server

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/reports"
)

// Restart ends the API server and starts it as o says: another version, gate or authorizer chain, on the same
// etcd, with the same keys, at the same address and with the same recorder. It reads the witness back anew. Nobody
// else may use the target meanwhile. After an error no API server runs, and Restart may be called again.
func (s *Server) Restart(ctx context.Context, o Options) error {
	s.users.Lock()
	defer s.users.Unlock()
	middlePart, err := loadMiddle(o.Chain)
	if err != nil {
		return err
	}
	if !s.can.Cheap && Shared(s.started, o) && reloadable(s.started, o) {
		return s.changeChain(ctx, o)
	}
	s.Cell, s.between, s.askedChain, s.currentChain, s.Kubectl = o.Cell, middlePart, o.Chain, o.Chain, o.Kubectl
	s.Witness, s.last = reports.Witness{}, nil
	took, err := s.replaceAPIServer(ctx, o)
	if err != nil {
		return err
	}
	s.started, s.replaced = o, time.Now().Add(-took)
	if err := s.witness(ctx, o); err != nil {
		return fmt.Errorf("after the restart: %w", err)
	}
	return nil
}

// Renew ends the API server and starts it as it was, while others use it: its caches are empty. Version and gate are
// read back; that the chain is as before is not asked, for the recorder may be counting.
func (s *Server) Renew(ctx context.Context) error {
	s.users.Lock()
	defer s.users.Unlock()
	o := s.started
	s.Witness.Mismatches = nil
	if _, err := s.replaceAPIServer(ctx, o); err != nil {
		return err
	}
	return s.readBack(ctx, o)
}

// Replaced is when the API server that runs now was started by Restart: the one before had ended.
func (s *Server) Replaced() time.Time { return s.replaced }

// Kill kills the API server on purpose. None runs until Restart.
func (s *Server) Kill() error {
	killer, kills := s.cluster.(clusters.Killer)
	if !kills {
		return fmt.Errorf("the API server of a cluster of the provider %s cannot be killed", s.Cell.Provider)
	}
	return killer.KillAPIServer()
}

func (s *Server) replaceAPIServer(ctx context.Context, o Options) (took time.Duration, err error) {
	provider, err := o.provider()
	if err != nil {
		return 0, err
	}
	restarter, restarts := provider.(clusters.Restarter)
	if !restarts {
		return 0, fmt.Errorf("the API server of a cluster of the provider %s cannot be replaced", provider.Name())
	}
	request, err := s.request(o)
	if err != nil {
		return 0, err
	}
	s.adminHTTP.CloseIdleConnections()
	return restarter.Restart(ctx, s.cluster, request)
}

// Shared reports whether one cluster can be two targets, one after the other: they differ in nothing but the
// authorizer chain. An API server reads an ABAC policy only when it starts: a cluster that is not cheap has its API server
// restarted for one, while one that is cheap is made anew.
func Shared(a, b Options) bool {
	can := a.Capabilities()
	if a.Chain == b.Chain || !can.Reload {
		return false
	}
	if can.Cheap && !reloadable(a, b) {
		return false
	}
	if a.Binaries.GivenAPIServer(a.Cell.Name) != b.Binaries.GivenAPIServer(b.Cell.Name) {
		return false
	}
	for _, o := range []*Options{&a, &b} {
		o.Cell.Name, o.Chain, o.Kubectl = "", "", nil
	}
	return reflect.DeepEqual(a, b)
}

// reloadable reports whether an API server takes over the chain of b for that of a while it runs.
func reloadable(a, b Options) bool { return !a.hasABAC() && !b.hasABAC() }

// hasABAC reports whether the chain has an ABAC authorizer. A chain that does not exist is an error where it is used.
func (o Options) hasABAC() bool {
	middlePart, err := loadMiddle(o.Chain)
	return err == nil && middlePart.ABACPolicy != ""
}

// Switch makes the target the one that o asks for, which shares its cluster. Where it can, the API server takes over
// the other authorizer chain while it runs. The witness is read anew. Nobody else may use the target meanwhile.
func (s *Server) Switch(ctx context.Context, o Options) error {
	if !reloadable(s.started, o) {
		return s.Restart(ctx, o)
	}
	s.users.Lock()
	defer s.users.Unlock()
	return s.changeChain(ctx, o)
}

// changeChain makes the target another cell's by its chain alone.
func (s *Server) changeChain(ctx context.Context, o Options) error {
	if err := s.Reload(ctx, o.Chain); err != nil {
		return err
	}
	s.Cell, s.askedChain, s.started, s.Kubectl = o.Cell, o.Chain, o, o.Kubectl
	s.Witness, s.last = reports.Witness{}, nil
	return s.witness(ctx, o)
}
