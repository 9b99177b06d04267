package matrix

import (
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

// FileKind is the kind of a matrix file, of reports.FileVersion.
const FileKind = "Matrix"

// file is a matrix file: the cells are those of all entries.
type file struct {
	APIVersion string  `yaml:"apiVersion"`
	Kind       string  `yaml:"kind"`
	Cells      []entry `yaml:"cells"`
}

// entry is each of its versions with each of its gate states.
type entry struct {
	Kubernetes []string `yaml:"kubernetes"`
	// Emulate are versions that each of Kubernetes emulates; none is its own.
	Emulate []string `yaml:"emulate"`
	Gate    []string `yaml:"gate"`
}

// Load reads a matrix file and expands it; base has what the file does not say: provider, feature gates, binaries.
// It is strict: an unknown field, a version or a gate state that there is not, or a cell that is there twice is an
// error with file, line and column. name is for the messages.
func Load(name string, data []byte, base Matrix) ([]target.Options, error) {
	var f file
	doc, err := scenarios.DecodeKind(name, data, "a matrix", reports.FileVersion, FileKind, &f)
	if err != nil {
		return nil, err
	}
	if len(f.Cells) == 0 {
		return nil, fmt.Errorf("%s: there are no cells", doc.At("$.cells"))
	}
	var cells []target.Options
	for i, e := range f.Cells {
		more, err := e.cells(base)
		if err == nil {
			err = distinct(append(cells[:len(cells):len(cells)], more...))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", doc.At(fmt.Sprintf("$.cells[%d]", i)), err)
		}
		cells = append(cells, more...)
	}
	return cells, nil
}

func (e entry) cells(base Matrix) ([]target.Options, error) {
	if len(e.Gate) == 0 {
		return nil, fmt.Errorf("gate is missing (expected a list of on, off, default, absent, both, all)")
	}
	base.Kubernetes, base.Gate = e.Kubernetes, strings.Join(e.Gate, ",")
	if len(e.Emulate) == 0 {
		return base.Cells()
	}
	return base.Emulating(e.Emulate)
}

// Emulating is the matrix once for each emulated version.
func (m Matrix) Emulating(versions []string) ([]target.Options, error) {
	var cells []target.Options
	for _, v := range versions {
		m.Emulate = v
		more, err := m.Cells()
		if err != nil {
			return nil, err
		}
		cells = append(cells, more...)
	}
	return cells, distinct(cells)
}
