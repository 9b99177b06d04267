package local

import "github.com/spf13/pflag"

// HasSource reports whether the user names a source tree.
func (b *Binaries) HasSource() bool { return b.sourceDir != "" }

// RegisterFlags adds the flags that say where programs come from to a flag set.
func (b *Binaries) RegisterFlags(flags *pflag.FlagSet) {
	flags.StringVar(&b.Source, "binaries", "", "where programs come from that neither TEST_ASSET_* nor the cache has: official (as they are published), build (from pinned modules) or auto, official if that can be had (default $"+SourceVariable+" or auto)")
	flags.StringVar(&b.Mirror, "binaries-mirror", "", "URL (http, https or file) below which dl.k8s.io/... and github.com/... are mirrored (default $"+MirrorVariable+")")
	flags.StringVar(&b.sourceDir, "source", "", "folder from which the kube-apiserver of the version "+SourceWord+" is built: a checkout of kubernetes/kubernetes, or a module that requires it")
}
