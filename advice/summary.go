// Package advice computes which permissions the impersonations in an audit log need once impersonation is constrained
// (KEP-5284): for each requestor the least RBAC, what has to stay with legacy impersonation, which of the present
// legacy grants nobody needs, and what must not be allowed in addition. Package auditlog reads the logs.
package advice

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Options say how the advice is made.
type Options struct {
	// MaxNames is how many objects a rule names at most. With more, it is for all objects of the resource. 0 means no
	// limit.
	MaxNames int
	MaxSeen  int // the largest number of different impersonations that are kept; 0 means a million
}

// defaultMaxSeen bounds the memory to some hundreds of MB.
const defaultMaxSeen = 1_000_000

// ErrTooMany means that the log has more different impersonations than are kept.
var ErrTooMany = errors.New("more different impersonations than are kept in memory")

// Action is a request as the action check sees it.
type Action struct {
	Verb, APIGroup, Version, Resource, Subresource, Namespace, Name string
	// Path is the path of a request for no resource.
	Path string
	// AnyName means that there were too many names, so that the action is on all objects.
	AnyName bool
}

// String returns the action for people.
func (a Action) String() string {
	if a.Path != "" {
		return a.Verb + " " + a.Path
	}
	return a.Verb + " " + verdicts.RenderAbout(
		scenarios.Review{Group: a.APIGroup, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name},
	)
}

// ObservedImpersonation is a kind of impersonation that was seen: one user did something on behalf of another.
type ObservedImpersonation struct {
	// Requestor authenticated. Of its extra only the node is kept, and only if the mode looks at it.
	Requestor scenarios.User
	As        scenarios.Impersonate // what the impersonation headers asked for
	Mode      oracle.Mode           // the constrained mode that can serve it; empty if there is none
	Action    Action
	Count     int64 // how often it was seen
}

// Summary collects what was seen. It is not safe for use by several goroutines.
type Summary struct {
	o          Options
	server     *oracle.Server
	requestors map[string]*requestor
	masters    map[string]int64
	size       int
}

type requestor struct {
	name       string
	groups     sets.Set[string]
	as         map[string]*identity
	names      map[Action]map[string]bool // the names of an action that has none itself
	what       map[Action]*Action
	pairCounts map[pair]int64
}

// identity is a user whom a requestor impersonates in one mode.
type identity struct {
	key  string
	node map[string][]string // the requestor's extra, where the mode looks at it
	as   scenarios.Impersonate
	mode oracle.Mode
	// why says why no constrained mode can serve it, if mode is empty.
	why string
	// instead is another request for the same user that a constrained mode can serve, or nil.
	instead *instead
	// grants are the grants of the identity checks. legacy are the grants of legacy impersonation.
	grants, legacy []scenarios.Grant
}

// pair is an identity and an action. There are many pairs, of few identities and few actions.
type pair struct {
	as     *identity
	action *Action
}

// NewSummary returns an empty summary.
func NewSummary(o Options) (*Summary, error) {
	o.MaxSeen = cmp.Or(o.MaxSeen, defaultMaxSeen)
	modelled := oracle.Versions()
	server, err := oracle.New(oracle.Config{Kubernetes: modelled[len(modelled)-1], Gate: scenarios.GateOn})
	return &Summary{o: o, server: server, requestors: map[string]*requestor{}, masters: map[string]int64{}}, err
}

// Add adds an event of a request that impersonated. isRepeated means that another event of the same request was added
// before. An error other than ErrTooMany means that the event says something that no API server says.
func (s *Summary) Add(e *auditv1.Event, isRepeated bool) error {
	action, err := actionOf(e.Verb, e.RequestURI)
	if err != nil {
		return err
	}
	if slices.Contains(e.User.Groups, user.SystemPrivilegedGroup) {
		if !isRepeated {
			s.masters[e.User.Username]++
		}
		return nil // no authorizer ever sees them
	}
	_, err = s.note(requestorOf(e), headersOf(e), action, isRepeated)
	return err
}

// note adds that a requestor did something on behalf of somebody.
func (s *Summary) note(who scenarios.User, impersonation scenarios.Impersonate, action Action, isRepeated bool) (*identity, error) {
	r := s.requestors[who.Name]
	if r == nil {
		r = &requestor{
			name:       who.Name,
			groups:     sets.New[string](),
			as:         map[string]*identity{},
			names:      map[Action]map[string]bool{},
			what:       map[Action]*Action{},
			pairCounts: map[pair]int64{},
		}
		s.requestors[r.name] = r
	}
	r.groups.Insert(who.Groups...)
	action = r.limitNames(action, s.o.MaxNames)
	r.what[action] = cmp.Or(r.what[action], &action)
	p := pair{s.identity(r, who, impersonation), r.what[action]}
	_, isKnown := r.pairCounts[p]
	if !isKnown {
		s.size++
		if s.size > s.o.MaxSeen {
			return nil, ErrTooMany
		}
	}
	if !isKnown || !isRepeated {
		r.pairCounts[p]++
	}
	return p.as, nil
}

// limitNames returns an action without its name if too many names were seen with it.
func (r *requestor) limitNames(a Action, most int) Action {
	if most == 0 || a.Name == "" {
		return a
	}
	general := a
	general.Name, general.AnyName = "", true
	names := r.names[general]
	if names == nil {
		names = map[string]bool{}
		r.names[general] = names
	}
	if len(names) <= most {
		names[a.Name] = true
	}
	if len(names) > most {
		return general
	}
	return a
}

func (s *Summary) identity(r *requestor, who scenarios.User, impersonation scenarios.Impersonate) *identity {
	// Maps are printed in a fixed order.
	key := fmt.Sprintf("%q %q %q %q %q", impersonation.User, who.Extra, impersonation.UID, impersonation.Groups, impersonation.Extra)
	if known := r.as[key]; known != nil {
		return known
	}
	entry := &identity{key: key, as: impersonation}
	for _, need := range s.server.Missing(who, &impersonation, oracle.Request{}) {
		switch {
		case need.Mode == oracle.Legacy:
			entry.legacy = need.Grants
		case need.Refused != "":
			entry.why = reason(need.Refused)
		case entry.mode == "":
			// Missing was not given the request, so the grant of the action check is left out here.
			entry.mode, entry.grants = need.Mode, slices.DeleteFunc(slices.Clone(need.Grants), func(g scenarios.Grant) bool {
				return strings.HasPrefix(g.Verbs[0], onPrefix)
			})
		}
	}
	if entry.mode == oracle.AssociatedNode {
		entry.node = who.Extra
	}
	if entry.mode == "" && entry.why == "" {
		entry.why = "nodes and service accounts are impersonated by name alone: with a UID, groups or extra no constrained mode applies"
	}
	entry.instead = s.findInstead(r, who, impersonation)
	r.as[key] = entry
	return entry
}

// reason returns why a mode refuses, as the message of a 403 says it.
func reason(message string) string {
	if i := strings.Index(message, ": impersonating "); i >= 0 {
		return message[i+2:]
	}
	return message
}

// onPrefix is the beginning of the verbs of action checks.
const onPrefix = "impersonate-on:"

// Empty reports whether nothing was seen.
func (s *Summary) Empty() bool { return s.size == 0 && len(s.masters) == 0 }

// ObservedImpersonation returns everything that was seen, in a fixed order, each followed by the request that would better be sent for
// the same user, if any.
func (s *Summary) Seen() (out []ObservedImpersonation) {
	for _, name := range slices.Sorted(maps.Keys(s.requestors)) {
		r := s.requestors[name]
		pairs := r.sorted()
		for _, p := range pairs {
			out = append(out, r.describe(p, r.pairCounts[p]))
		}
		isListed := map[pair]bool{}
		for _, p := range pairs {
			if p.as.instead == nil {
				continue
			}
			other := pair{p.as.instead.as, p.action}
			if r.pairCounts[other] == 0 && !isListed[other] {
				isListed[other] = true
				out = append(out, r.describe(other, r.pairCounts[p]))
			}
		}
	}
	return out
}

// describe returns what the requestor did on behalf of somebody, or could do.
func (r *requestor) describe(p pair, count int64) ObservedImpersonation {
	who := scenarios.User{Name: r.name, Groups: sets.List(r.groups), Extra: p.as.node}
	return ObservedImpersonation{Requestor: who, As: p.as.as, Mode: p.as.mode, Action: *p.action, Count: count}
}

// served returns the pair that a constrained mode can serve: this one, or the one for the same user by another request.
func (p pair) served() (_ pair, isServed bool) {
	switch {
	case p.as.mode != "":
		return p, true
	case p.as.instead == nil:
		return p, false
	}
	p.as = p.as.instead.as
	return p, true
}

// sorted returns what the requestor was seen to do, in a fixed order.
func (r *requestor) sorted() []pair {
	pairs := slices.Collect(maps.Keys(r.pairCounts))
	slices.SortFunc(pairs, func(a, b pair) int {
		if a.as != b.as {
			return strings.Compare(a.as.key, b.as.key)
		}
		return compareActions(*a.action, *b.action)
	})
	return pairs
}

// Profile is what a product sends and which permissions it asks for, by its public manifests and code. Names of people
// and objects are examples.
type Profile struct {
	Name    string          `json:"name,omitempty"` // the name of the file without its extension
	Product string          `json:"product"`        // the name of the product
	Date    string          `json:"date"`
	Sources []ProfileSource `json:"sources"` // what was read
	// Requestor authenticates. Legacy are the grants that it gets, without their subject.
	Requestor string            `json:"requestor"`
	Legacy    []scenarios.Grant `json:"legacy"`
	Sends     []Sent            `json:"sends"` // whom it impersonates
}

// ProfileSource is a file in a public repository, and what it says.
type ProfileSource struct {
	Repository string `json:"repository"`
	Commit     string `json:"commit"`
	Path       string `json:"path"`
	Says       string `json:"says"`
}

// Sent is a kind of impersonation of a product.
type Sent struct {
	As scenarios.Impersonate `json:"as"`
	// When says in which case this happens. It is empty if it always happens.
	When string `json:"when,omitempty"`
	// Does are requests, such as "list /api/v1/pods". It is empty for a product that forwards any request.
	Does []string `json:"does,omitempty"`
}

//go:embed profiles/*.yaml
var profileFiles embed.FS

// anyRequest is an example of what a product does that forwards any request.
const anyRequest = "get /api/v1/namespaces/example/pods/example"

// Profiles returns all profiles, by their names.
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

// JudgedImpersonation is a kind of impersonation by a product, with what becomes of it.
type JudgedImpersonation struct {
	Sent
	// Mode is the constrained mode that serves it. Blocked says why none does.
	Mode    oracle.Mode `json:"mode,omitempty"`
	Blocked string      `json:"blocked,omitempty"`
	// Instead says by which other request the same user can be impersonated in a constrained mode. It is empty if there
	// is none.
	Instead string `json:"instead,omitempty"`
	// Legacy reports whether the legacy grants of the product allow it.
	Legacy bool `json:"legacy"`
}

// Summary returns what the product does as if a log contained it, and what becomes of each kind.
func (p Profile) Summary() (_ *Summary, all []JudgedImpersonation, _ error) {
	summary, err := NewSummary(Options{})
	if err != nil {
		return nil, nil, err
	}
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
		isRefused := slices.ContainsFunc((Kept{Legacy: id.legacy}).legacyChecks(), func(spec authorizationv1.SubjectAccessReviewSpec) bool {
			return !scenarios.Covered(p.Legacy, spec)
		})
		all = append(all, JudgedImpersonation{sent, id.mode, id.why, id.instead.String(), !isRefused})
	}
	return summary, all, nil
}
