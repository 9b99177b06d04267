package suites

import (
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/suites/impersonation"
)

// subjects are the suites by name, each with the scenario folders it owns.
var subjects = []struct {
	name    string
	folders func() []string
}{
	{"impersonation", impersonation.Folders},
	{"deputy", func() []string { return []string{"periscope"} }},
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
func Folders(names []string) ([]string, error) {
	var folders []string
	for _, name := range names {
		found := false
		for _, s := range subjects {
			if s.name == name {
				folders, found = append(folders, s.folders()...), true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no suite %q; there are %s", name, strings.Join(Names(), ", "))
		}
	}
	return folders, nil
}
