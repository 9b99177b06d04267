package advice

import (
	"cmp"
	"embed"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// Profile is what a product sends and asks for, by its public manifests and code. Names of people and objects are examples.
type Profile struct {
	Name    string          `json:"name,omitempty"` // the file's, without its ending
	Product string          `json:"product"`        // its name, and Date the day of what was read
	Date    string          `json:"date"`
	Sources []ProfileSource `json:"sources"` // what was read
	// Requestor authenticates, and Legacy is what it is granted, subject left out.
	Requestor string            `json:"requestor"`
	Legacy    []scenarios.Grant `json:"legacy"`
	Sends     []Sent            `json:"sends"` // whom it impersonates
}

// ProfileSource is a file of a public repository, and what it says.
type ProfileSource struct {
	Repository string `json:"repository"`
	Commit     string `json:"commit"`
	Path       string `json:"path"`
	Says       string `json:"says"`
}

// Sent is a kind of impersonation of a product.
type Sent struct {
	As scenarios.Impersonate `json:"as"`
	// When says when it comes to this; empty is always.
	When string `json:"when,omitempty"`
	// Does are requests, such as "list /api/v1/pods". Whoever forwards any request says nothing here.
	Does []string `json:"does,omitempty"`
}

//go:embed profiles/*.yaml
var profileFiles embed.FS

// anyRequest is an example of what a product does that forwards any request.
const anyRequest = "get /api/v1/namespaces/example/pods/example"

// Profiles are all profiles, by their names.
func Profiles() (all []Profile, err error) {
	files, err := profileFiles.ReadDir("profiles")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		raw, err := profileFiles.ReadFile("profiles/" + f.Name())
		if err != nil {
			return nil, err
		}
		p := Profile{Name: strings.TrimSuffix(f.Name(), ".yaml")}
		if err := yaml.UnmarshalStrict(raw, &p); err != nil {
			return nil, fmt.Errorf("profiles/%s: %w", f.Name(), err)
		}
		for i := range p.Legacy {
			p.Legacy[i].Subject.User = p.Requestor
		}
		all = append(all, p)
	}
	return all, nil
}

// Judged is a kind of impersonation of a product with what becomes of it.
type Judged struct {
	Sent
	// Mode is the constrained mode that serves it. Blocked is why none does.
	Mode    oracle.Mode `json:"mode,omitempty"`
	Blocked string      `json:"blocked,omitempty"`
	// Legacy tells whether the legacy grants of the product allow it.
	Legacy bool `json:"legacy"`
}

// Summary is what the product does, as if a log told of it, and what becomes of each kind.
func (p Profile) Summary() (*Summary, []Judged, error) {
	summary, err := NewSummary(Options{})
	if err != nil {
		return nil, nil, err
	}
	var all []Judged
	for _, sent := range p.Sends {
		who := oracle.Authenticated(scenarios.User{Name: p.Requestor})
		var id *identity
		for does := range strings.SplitSeq(cmp.Or(strings.Join(sent.Does, "\n"), anyRequest), "\n") {
			verb, uri, _ := strings.Cut(does, " ")
			action, err := actionOf(verb, uri)
			if err != nil {
				return nil, nil, fmt.Errorf("profile %s: %w", p.Name, err)
			}
			if id, err = summary.note(who, sent.As, action, false); err != nil {
				return nil, nil, err
			}
		}
		refused := slices.ContainsFunc((Kept{Legacy: id.legacy}).legacyChecks(), func(spec authorizationv1.SubjectAccessReviewSpec) bool {
			return !scenarios.Covered(p.Legacy, spec)
		})
		all = append(all, Judged{sent, id.mode, id.why, !refused})
	}
	return summary, all, nil
}
