package oracle

import (
	"slices"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
)

// TestVersions wants every release that can be run to be modelled: certification takes its reviews from them.
func TestVersions(t *testing.T) {
	var releases []string
	for _, r := range local.Releases() {
		releases = append(releases, r.Minor)
	}
	if !slices.Equal(releases, Versions()) {
		t.Errorf("releases are %v, modelled are %v", releases, Versions())
	}
}
