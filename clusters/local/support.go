package local

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/seq"
)

//go:embed versions/upstream.yaml
var upstreamYAML []byte

// upstream is what the Kubernetes project said about its minors on a day.
var upstream = fixtures.Table[struct {
	Read   string `json:"read"`
	Minors map[string]struct {
		Newest string `json:"newest"`
		Ended  bool   `json:"ended"`
	} `json:"minors"`
}]("upstream.yaml", upstreamYAML)

// Support is what the Kubernetes project says about a pinned release.
type Support struct {
	Release Release
	// Newest is the newest patch version of the minor, on the day of SupportRead.
	Newest string
	// IsSupported reports whether the minor still got patches on that day.
	IsSupported bool
}

// SupportRead is the day on which the project was read, such as 2026-11-26.
func SupportRead() string { return upstream.Read }

// Supports returns what the Kubernetes project says about the pinned releases, beginning with the oldest.
func Supports() []Support {
	return seq.Map(releases, func(r Release) Support {
		minor := upstream.Minors[r.Minor]
		return Support{Release: r, Newest: minor.Newest, IsSupported: !minor.Ended}
	})
}

// String says in a few words what the project says.
func (s Support) String() string {
	if s.IsSupported {
		return fmt.Sprintf("supported, newest patch %s", s.Newest)
	}
	return fmt.Sprintf("ended, last patch %s", s.Newest)
}

// SupportedMinors returns the minors that the project supports, in words: 1.35, 1.36 and 1.37.
func SupportedMinors() string {
	var names []string
	for _, s := range Supports() {
		if s.IsSupported {
			names = append(names, s.Release.Minor)
		}
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
