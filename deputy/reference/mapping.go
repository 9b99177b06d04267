// Package reference is a reference deputy: a tool that sends the requests of many people to an API server, each
// under the name of the person, as the article on the deputy pattern describes it (periscope), with its own audit
// log; and the agent at the far end of a tunnel, which adds its token. Both are as small as they can be right:
// authzconf deputy tests API servers with them.
package reference

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// User is whom the identity provider says is there.
type User struct {
	// Subject is the name that is impersonated.
	Subject string
	// Groups are the identity provider's.
	Groups []string
}

// Mode is how groups of the identity provider become those of Kubernetes.
type Mode string

const (
	// Shared impersonates nobody: requests are the deputy's own.
	Shared Mode = "shared"
	// Tier impersonates with the one group of the user's tier.
	Tier Mode = "tier"
	// Raw impersonates with the user's groups behind a prefix.
	Raw Mode = "raw"
)

// Tiers are the five tiers, the least first.
func Tiers() []string { return []string{"read", "triage", "write", "maintain", "admin"} }

// TierPrefix is in front of a tier's name in its group.
const TierPrefix = "periscope-tier:"

// Mapping says whom a user is impersonated as.
type Mapping struct {
	Mode Mode
	// GroupTiers are the tiers of groups; of several the highest counts. DefaultTier
	// is that of users in none of them; empty refuses them.
	GroupTiers  map[string]string
	DefaultTier string
	// Prefix is in front of groups in the mode raw. It must not be empty.
	Prefix string
}

// Check says what is wrong with a mapping.
func (m Mapping) Check() error {
	switch m.Mode {
	case Shared:
		return nil
	case Raw:
		if m.Prefix == "" || strings.HasPrefix(m.Prefix, "system:") {
			return fmt.Errorf("prefix %q: groups need one, and not one of the system's", m.Prefix)
		}
		return nil
	case Tier:
		for group, tier := range m.GroupTiers {
			if !slices.Contains(Tiers(), tier) {
				return fmt.Errorf("group %q: there is no tier %q (expected one of %s)", group, tier, strings.Join(Tiers(), ", "))
			}
		}
		if m.DefaultTier != "" && !slices.Contains(Tiers(), m.DefaultTier) {
			return fmt.Errorf("there is no tier %q (expected one of %s)", m.DefaultTier, strings.Join(Tiers(), ", "))
		}
		return nil
	}
	return fmt.Errorf("mode %q is none of shared, tier, raw", m.Mode)
}

// ErrNobody says that a user cannot be impersonated.
var ErrNobody = errors.New("nobody to impersonate")

// impersonate writes the headers for a user. Without a subject there would be no header, and the request the
// deputy's own; a subject of the system's namespace of names would have rights that no identity provider gave.
func (m Mapping) impersonate(h http.Header, u User) error {
	if m.Mode == Shared {
		return nil
	}
	switch {
	case strings.TrimSpace(u.Subject) == "":
		return fmt.Errorf("%w: the session has no subject", ErrNobody)
	case strings.HasPrefix(u.Subject, "system:"):
		return fmt.Errorf("%w: the subject is one of the system's names", ErrNobody)
	}
	groups := make([]string, 0, len(u.Groups))
	if m.Mode == Tier {
		tier := m.tier(u.Groups)
		if tier == "" {
			return fmt.Errorf("%w: the user is in no tier", ErrNobody)
		}
		groups = append(groups, TierPrefix+tier)
	} else {
		for _, g := range u.Groups {
			groups = append(groups, m.Prefix+g)
		}
	}
	h.Set(userHeader, u.Subject)
	h[groupHeader] = groups
	return nil
}

// tier is the highest of a user's groups.
func (m Mapping) tier(groups []string) string {
	best := slices.Index(Tiers(), m.DefaultTier)
	for _, g := range groups {
		best = max(best, slices.Index(Tiers(), m.GroupTiers[g]))
	}
	if best < 0 {
		return ""
	}
	return Tiers()[best]
}
