package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/clusters/local"
)

func newControlPlanes() *cobra.Command {
	var versions []string
	c := &cobra.Command{
		Use:   "control-planes",
		Short: "Find or build etcd and kube-apiserver, and print where they are",
		Long: `Find or build etcd and the kube-apiserver of every version (or of those given),
so that later runs start at once. They are looked for in this order: TEST_ASSET_KUBE_APISERVER and
TEST_ASSET_ETCD, KUBEBUILDER_ASSETS, the cache, a build from pinned Go modules
(3 to 5 minutes per version on 2 cores, the first time).

Exit codes: 0 all are there, 2 bad usage, 3 one could not be found or built.`,
		Example: `  authzconf control-planes                   # all versions
  authzconf control-planes --kubernetes 1.36,1.37`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			releases := local.Releases()
			if len(versions) > 0 {
				releases = nil
			}
			for _, v := range versions {
				r, err := local.ParseRelease(v)
				if err != nil {
					return err
				}
				releases = append(releases, r)
			}
			return buildAll(c, releases)
		},
	}
	c.Flags().StringSliceVar(&versions, "kubernetes", nil, "versions (default: all)")
	return c
}

func buildAll(c *cobra.Command, releases []local.Release) error {
	b := &local.Binaries{Progress: c.ErrOrStderr()}
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
