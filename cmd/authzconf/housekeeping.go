package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/fixtures"
)

func newClean() *cobra.Command {
	var dryRun bool
	var kubeconfig, context string
	c := plainCommand("clean", func(c *cobra.Command) error {
		if kubeconfig != "" {
			return cleanExisting(c, kubeconfig, context, dryRun)
		}
		if err := kind.CheckEngine(c.Context()); err != nil {
			return err
		}
		names, err := kind.Leftovers(c.Context())
		if err != nil {
			return invalid(err)
		}
		var removed []string
		var errs []error
		for _, name := range names {
			if !dryRun {
				if err := kind.Remove(c.Context(), name); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", name, err))
					continue
				}
			}
			removed = append(removed, name)
		}
		return printRemoved(c, removed, dryRun, errors.Join(errs...))
	})
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "clean up this cluster, in which runs with --provider existing took place")
	c.Flags().StringVar(&context, "context", "", "the context of --kubeconfig (default: its current one)")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be removed")
	return c
}

func newControlPlanes() *cobra.Command {
	var versions []string
	var isList bool
	c := plainCommand("control-planes", func(c *cobra.Command) error {
		if isList {
			return listVersions(c)
		}
		releases := local.Releases()
		if len(versions) > 0 {
			releases = nil
		}
		b := binaries(c)
		resolved, err := b.Resolve(c.Context(), product.NewInvocation(nil, suiteVersion(), c.ErrOrStderr()).Fact, versions...)
		if err != nil {
			return err
		}
		for _, v := range resolved {
			r, err := local.ParseRelease(v)
			if err != nil {
				return err
			}
			releases = append(releases, r)
		}
		return buildAll(c, b, releases)
	})
	c.Flags().StringSliceVar(&versions, "kubernetes", nil, "versions, each "+local.VersionsHelp()+" (default: all minors)")
	c.Flags().BoolVar(&isList, "list", false, "only list the versions, and what the Kubernetes project says of each")
	c.MarkFlagsMutuallyExclusive("list", "kubernetes")
	programFlags(c.Flags())
	return c
}

// listVersions prints the pinned versions with what the Kubernetes project says about them.
func listVersions(c *cobra.Command) error {
	if err := renderTable(c.OutOrStdout(), "versions", local.Supports(), 0); err != nil {
		return invalid(err)
	}
	_, err := fmt.Fprintf(
		c.OutOrStdout(),
		"What Kubernetes supports was read on %s. Any other version can be run by its exact name.\n",
		local.SupportRead(),
	)
	return invalid(err)
}

func buildAll(c *cobra.Command, b *local.Binaries, releases []local.Release) error {
	path, err := b.Etcd(c.Context())
	if err != nil {
		return invalid(err)
	}
	_, _ = fmt.Fprintf(c.OutOrStdout(), "etcd\t%s\n", path)
	for _, r := range releases {
		path, err := b.KubeAPIServer(c.Context(), r)
		if err != nil {
			return invalid(err)
		}
		_, _ = fmt.Fprintf(c.OutOrStdout(), "kube-apiserver %s\t%s\n", r.Version, path)
	}
	return nil
}

func newUp() *cobra.Command {
	var flags matrix.Flags
	var port int
	var auditLog string
	c := plainCommand("up", func(c *cobra.Command) error {
		cells, err := flags.Cells(product.NewInvocation(nil, suiteVersion(), c.ErrOrStderr()))
		if err := errors.Join(err, server.CheckAPIServers(cells)); err != nil {
			return err
		}
		return up(c, cells, port, auditLog)
	})
	flags.Register(c.Flags())
	c.Flags().IntVar(&port, "port", 0, "port of the API server on 127.0.0.1 (default: a free one)")
	c.Flags().StringVar(&auditLog, "audit-log", "", "file for the audit events of all requests (level Metadata), which is begun anew")
	return c
}

func up(c *cobra.Command, cells []server.Options, port int, auditLog string) error {
	switch {
	case !cells[0].Capabilities().Processes:
		return fmt.Errorf(
			"up starts control planes of the provider %s; run --provider %s --keep leaves a cluster",
			server.Local,
			cells[0].Cell.Provider,
		)
	case len(cells) != 1:
		return fmt.Errorf("up starts one control plane, but --kubernetes and --gate name %d", len(cells))
	}
	ctx := c.Context()
	options := cells[0].LocalOptions(port)
	var err error
	if options.KubeAPIServerPath, err = cells[0].Binaries.FindGivenAPIServer(cells[0].Cell.Name); err != nil {
		return err
	}
	if auditLog != "" {
		log, err := os.Create(auditLog)
		if err != nil {
			return fmt.Errorf("--audit-log: %w", err)
		}
		defer func() { _ = log.Close() }()
		if options.AuditPolicy, err = fixtures.FS.ReadFile("audit-policy.yaml"); err != nil {
			return err
		}
		options.AuditSink = log
	}
	plane, err := local.Start(ctx, options)
	if err != nil {
		return invalid(err)
	}
	defer func() { _ = plane.Stop() }() // for a panic; a second call does nothing
	return invalid(errors.Join(serve(c, cells[0].Cell.Kubernetes, plane), plane.Stop()))
}

// serve prints where the control plane is, and waits for Ctrl-C. An error says why the control plane has ended by
// itself.
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

func cleanExisting(c *cobra.Command, kubeconfig, context string, dryRun bool) error {
	cluster, err := existing.Open(kubeconfig, context, "")
	if err != nil {
		return err
	}
	names, err := cluster.Clean(c.Context(), "", dryRun)
	return printRemoved(c, names, dryRun, err)
}

// printRemoved prints what was removed or would be. err, if it is not nil, says why something was not removed.
func printRemoved(c *cobra.Command, names []string, dryRun bool, err error) error {
	verb := map[bool]string{true: "would remove", false: "removed"}[dryRun]
	for _, name := range names {
		_, _ = fmt.Fprintf(c.OutOrStdout(), "%s %s\n", verb, name)
	}
	if len(names) == 0 && err == nil {
		_, _ = fmt.Fprintln(c.OutOrStdout(), "nothing is left behind")
	}
	return invalid(err)
}
