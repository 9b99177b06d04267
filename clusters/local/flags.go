package local

import "github.com/spf13/pflag"

// RegisterFlags adds the flags that say where programs come from to a flag set.
func (b *Binaries) RegisterFlags(flags *pflag.FlagSet) {
	flags.StringVar(
		&b.Source,
		"binaries",
		"",
		"where programs come from that neither TEST_ASSET_* nor the cache has: official (as they are published), build (from pinned modules) or auto, official if that can be had (default $"+SourceVariable+" or auto)",
	)
	flags.StringVar(
		&b.Mirror,
		"binaries-mirror",
		"",
		"URL (http, https or file) below which dl.k8s.io/... and github.com/... are mirrored (default $"+MirrorVariable+")",
	)
}

// RegisterSource adds the flag that names a source tree to a flag set. It is for commands that resolve versions; see
// Resolve.
func (b *Binaries) RegisterSource(flags *pflag.FlagSet) {
	flags.StringVar(
		&b.sourceDir,
		"source",
		"",
		"folder from which the kube-apiserver of the version "+SourceWord+" is built: a checkout of kubernetes/kubernetes, or a module that requires k8s.io/kubernetes",
	)
	b.flags = flags
}
