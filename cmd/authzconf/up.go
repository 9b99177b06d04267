package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/engine/target"
)

func newUp() *cobra.Command {
	var flags matrixFlags
	var port int
	c := &cobra.Command{
		Use:   "up",
		Short: "Start one control plane to explore, until Ctrl-C",
		Long: `Start etcd and a kube-apiserver (authorizers: Node and RBAC), print the path of an
administrator's kubeconfig, and stop and remove everything on Ctrl-C.

Exit codes: 0 stopped by Ctrl-C, 2 bad usage, 3 the control plane did not start, or died.`,
		Example: `  authzconf up --gate on
  authzconf up --kubernetes 1.35 > path &    # the path is the only line on stdout`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			m, err := flags.resolve()
			if err != nil {
				return err
			}
			m.Binaries = &local.Binaries{Progress: c.ErrOrStderr()}
			return up(c, m, port)
		},
	}
	flags.register(c, "default")
	c.Flags().IntVar(&port, "port", 0, "port of the API server on 127.0.0.1 (default: a free one)")
	return c
}

func up(c *cobra.Command, m matrix.Matrix, port int) error {
	cells, err := m.Cells()
	if err != nil {
		return err
	}
	if m.Provider != target.Local {
		return fmt.Errorf("up starts control planes of the provider %s; run --provider %s --keep leaves a cluster", target.Local, m.Provider)
	}
	if len(cells) != 1 {
		return fmt.Errorf("up starts one control plane, but --kubernetes and --gate name %d", len(cells))
	}
	ctx := c.Context()
	plane, err := local.Start(ctx, cells[0].LocalOptions(port))
	if err != nil {
		return invalid(err)
	}
	defer func() { _ = plane.Stop() }() // for a panic; a second call does nothing
	if err := errors.Join(serve(c, cells[0].Cell.Kubernetes, plane), plane.Stop()); err != nil {
		return invalid(err)
	}
	return nil
}

// serve says where the control plane is, and waits for Ctrl-C. An error is why it does not serve any more.
func serve(c *cobra.Command, kubernetes string, plane *local.ControlPlane) error {
	if _, err := fmt.Fprintln(c.OutOrStdout(), plane.KubeconfigPath()); err != nil {
		return fmt.Errorf("printing the path of the kubeconfig: %w", err)
	}
	_, _ = fmt.Fprintf(c.ErrOrStderr(), "Kubernetes %s is ready at %s; the kubeconfig above is an administrator's. Ctrl-C stops it.\n",
		kubernetes, plane.Admin().Host)
	select {
	case <-c.Context().Done():
		return nil
	case <-plane.Done():
		return plane.Err()
	}
}
