// Package suites is the view of Ginkgo on what the engine runs: a spec for every scenario on every cell, with labels.
// Planning, running and reports are the engine's, with or without it, and what Ginkgo's filters leave out is not run.
package suites

import (
	"fmt"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

// subjects are the suites by name, each with the scenario folders it owns.
var subjects = []struct {
	name    string
	folders []string
}{
	{"impersonation", []string{"kep-5284", "docs-user-impersonation", "kubernetes"}},
	{"deputy", []string{"periscope"}},
}

// Names are the names of all suites.
func Names() []string {
	var names []string
	for _, s := range subjects {
		names = append(names, s.name)
	}
	return names
}

// Folders are the scenario folders of the named suites; without names of all.
func Folders(names ...string) ([]string, error) {
	var folders []string
	for _, name := range names {
		found := false
		for _, s := range subjects {
			if s.name == name {
				folders, found = append(folders, s.folders...), true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no suite %q; there are %s", name, strings.Join(Names(), ", "))
		}
	}
	return folders, nil
}

// LabelFilter reads an expression of labels in the language of Ginkgo's --label-filter.
func LabelFilter(text string) (func(labels []string) bool, error) {
	return types.ParseLabelFilter(text)
}
