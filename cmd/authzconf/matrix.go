package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/engine/target"
)

// expansion says which cells a matrix has.
type expansion struct {
	matrixFlags
	kubernetes, gates []string
	real, emulated    bool
	file              string
}

func newMatrix() *cobra.Command {
	var cells expansion
	var flags conformanceFlags
	c := &cobra.Command{
		Use:   "matrix",
		Short: "Replay scenarios against every version and state of the gate",
		Long: `Do what run does, on many control planes: each Kubernetes minor with each state
that its feature gate ConstrainedImpersonation can have (off, on and default; absent
where the version has none). The report shows which scenarios went otherwise on one
cell than on another.

With --emulated the newest kube-apiserver emulates the versions, which is quicker
than the real ones and less of a proof; with --real and --emulated it is both. A
matrix can also be written down: see --file.`,
		Example: `  authzconf matrix --report-dir report       # the real versions
  authzconf matrix --emulated --report-dir report
  authzconf matrix --kubernetes 1.36,1.37 --gate on,default
  authzconf matrix --file ci/matrix.yaml --report-dir report
  authzconf matrix --dry-run                 # which cells, and what would run`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return flags.run(c, func() ([]target.Options, error) { return cells.expand(c) })
		},
	}
	fl := c.Flags()
	fl.StringSliceVar(&cells.kubernetes, "kubernetes", nil, "versions, of "+matrix.Known()+" (default: all, or all that can be emulated)")
	fl.StringSliceVar(&cells.gates, "gate", []string{"all"}, "states of ConstrainedImpersonation: on, off, default, absent, or all that each version has")
	fl.BoolVar(&cells.real, "real", false, "run the versions themselves (the default)")
	fl.BoolVar(&cells.emulated, "emulated", false, "have Kubernetes "+matrix.Newest()+" emulate the versions")
	fl.StringVar(&cells.file, "file", "", "take the cells from a matrix file")
	for _, other := range []string{"kubernetes", "gate", "real", "emulated"} {
		c.MarkFlagsMutuallyExclusive("file", other)
	}
	cells.registerCommon(c)
	flags.register(c)
	return c
}

// expand makes the cells, of the file or of the other flags.
func (e *expansion) expand(c *cobra.Command) ([]target.Options, error) {
	m, err := e.resolve()
	if err != nil {
		return nil, err
	}
	m.Binaries = &local.Binaries{Progress: c.ErrOrStderr()}
	if e.file != "" {
		data, err := os.ReadFile(e.file)
		if err != nil {
			return nil, err
		}
		return matrix.Load(e.file, data, m)
	}
	m.Gate = strings.Join(e.gates, ",")
	given := c.Flags().Changed("kubernetes")
	var cells []target.Options
	if e.real || !e.emulated {
		if m.Kubernetes = e.kubernetes; !given {
			m.Kubernetes = matrix.Minors()
		}
		if cells, err = m.Cells(); err != nil {
			return nil, err
		}
	}
	if e.emulated {
		versions := e.kubernetes
		if !given {
			versions = matrix.Emulated()
		}
		m.Kubernetes = []string{matrix.Newest()}
		more, err := m.Emulating(versions)
		if err != nil {
			return nil, err
		}
		cells = append(cells, more...)
	}
	return cells, nil
}
