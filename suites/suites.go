package suites

import (
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/suites/labels"
)

type subject struct {
	name    string
	folders []string
}

// subjects are the suites by name, each with the scenario folders it owns.
var subjects = []subject{
	{"impersonation", []string{"kep-5284", "docs-user-impersonation", "kubernetes"}},
	{"deputy", []string{"periscope"}},
}

// Names are the names of all suites.
func Names() []string { return seq.Map(subjects, func(s subject) string { return s.name }) }

// Folders are the scenario folders of the named suites; without names of all.
func Folders(names ...string) (folders []string, _ error) {
	for _, name := range names {
		i := slices.Index(Names(), name)
		if i < 0 {
			return nil, fmt.Errorf("there is no suite %q; there are %s", name, strings.Join(Names(), ", "))
		}
		folders = append(folders, subjects[i].folders...)
	}
	return folders, nil
}

// LabelFilter reads an expression of labels in the language of Ginkgo's --label-filter.
func LabelFilter(text string) (func(labels []string) bool, error) { return labels.Filter(text) }
