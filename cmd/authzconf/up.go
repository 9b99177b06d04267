package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/suites/matrix"
)

func newUp() *cobra.Command {
	var flags matrixFlags
	var port int
	c := &cobra.Command{
		Use:   "up",
		Short: "Start one control plane to explore, until Ctrl-C",
		Long: `Start etcd and a kube-apiserver (authorized by Node and RBAC), print the path of
an administrator's kubeconfig, and stop and remove everything on Ctrl-C.`,
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
	if len(cells) != 1 {
		return fmt.Errorf("up starts one control plane; --kubernetes and --gate name %d", len(cells))
	}
	ctx := c.Context()
	plane, err := local.Start(ctx, cells[0].LocalOptions(port))
	if err != nil {
		var usage *local.UsageError
		if errors.As(err, &usage) {
			return err
		}
		return invalid(err)
	}
	_, _ = fmt.Fprintln(c.OutOrStdout(), plane.KubeconfigPath())
	_, _ = fmt.Fprintf(c.ErrOrStderr(), "Kubernetes %s is ready at %s; the kubeconfig above is an administrator's. Ctrl-C stops it.\n",
		cells[0].Cell.Kubernetes, plane.Admin().Host)
	select {
	case <-ctx.Done():
		err = nil
	case <-plane.Done():
		err = plane.Err()
	}
	if err := errors.Join(err, plane.Stop()); err != nil {
		return invalid(err)
	}
	return nil
}
