package scenarios

import "embed"

// FS holds the scenarios that come with authzconf. Load it together with the fixtures of package fixtures.
//
//go:embed docs-user-impersonation kep-5284 kep-5681 kubernetes periscope
var FS embed.FS
