// Package dashboard is about a dashboard as it is: one whose HTTP interface is its own, and not the Kubernetes API. A
// file says which of its requests are sent, and what each must lead to at the API server. What arrived is judged by the
// API server's audit log, and compared with the dashboard's own audit trail. The package does no I/O.
package dashboard

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/authzconf/authzconf/scenarios"
)

// Nobody is the sender of a request without credentials.
const Nobody = "nobody"

// File is what a user writes about a dashboard.
type File struct {
	// Account is the dashboard's account at the API server, as the audit log names it. It may be left out if authzconf
	// starts the control plane.
	Account string `yaml:"account,omitempty"`
	// Pause is how long the dashboard may go on acting after it has answered.
	Pause time.Duration `yaml:"pause,omitempty"`
	// ReviewsWithin is how old the answer of an access review may be when the request arrives. 0 means any age.
	ReviewsWithin time.Duration `yaml:"reviewsWithin,omitempty"`
	// Own are the requests that the dashboard may make under its own account. Names and namespaces that are left out
	// stand for all of them.
	Own []Attributes `yaml:"own,omitempty"`
	// Grants and Objects are created before the first request, if authzconf starts the control plane.
	Grants  []scenarios.Grant `yaml:"grants,omitempty"`
	Objects []map[string]any  `yaml:"objects,omitempty"`
	// Trail says how the rows of the dashboard's own audit trail are read.
	Trail *TrailFormat `yaml:"trail,omitempty"`
	// Requests are sent in their order, one at a time.
	Requests []Request `yaml:"requests"`

	// clusters are the names of two clusters behind the dashboard. It is empty if there is one cluster.
	clusters []string
}

// Request is a request to the dashboard's own HTTP interface, and what it must lead to.
type Request struct {
	Name string `yaml:"name"`
	// As is one of the people whom --identity names, or nobody.
	As      string            `yaml:"as"`
	Method  string            `yaml:"method,omitempty"` // if it is left out, GET
	Path    string            `yaml:"path"`
	Headers map[string]string `yaml:"headers,omitempty"`
	Body    string            `yaml:"body,omitempty"`
	// Arrives are the requests that must arrive at the API server on behalf of the person. An empty list means that
	// none may arrive.
	Arrives []Attributes `yaml:"arrives"`
	// Asks are the actions about which the dashboard must ask an access review on behalf of the person, without doing
	// them: those that the buttons of a page offer. Yes and no are both right answers.
	Asks []Attributes `yaml:"asks,omitempty"`
	// Refused means that the person lacks the permission. What arrives must be refused; it need not arrive.
	Refused bool `yaml:"refused,omitempty"`
	// Review says which access review must precede the request. If it is left out, it is access for a request that
	// writes, and none for one that reads.
	Review ReviewKind `yaml:"review,omitempty"`
	// Answered is the code that the dashboard must answer. 0 means any code.
	Answered int `yaml:"answered,omitempty"`
	// Row is the row of the dashboard's own audit trail. If it is left out, a request that writes needs a row that says
	// what arrived.
	Row *Row `yaml:"row,omitempty"`
}

// Attributes are what a request at the API server is about.
type Attributes struct {
	// Cluster is one of two clusters behind the dashboard. If it is left out, it is the first one; in Own it is any of
	// them.
	Cluster  string `yaml:"cluster,omitempty"`
	Verb     string `yaml:"verb"`
	APIGroup string `yaml:"apiGroup,omitempty"`
	// Resource includes the subresource after a slash, such as pods/eviction.
	Resource  string `yaml:"resource"`
	Namespace string `yaml:"namespace,omitempty"`
	Name      string `yaml:"name,omitempty"`
}

// ReviewKind is a kind of access review.
type ReviewKind string

// These are the kinds of access review that a request may need.
const (
	AccessReview ReviewKind = "access"
	RulesReview  ReviewKind = "rules"
	EitherReview ReviewKind = "either"
	NoReview     ReviewKind = "none"
)

// reviewKinds returns all kinds of access review.
func reviewKinds() []ReviewKind {
	return []ReviewKind{AccessReview, RulesReview, EitherReview, NoReview}
}

// String returns the attributes in one line, such as "delete pods web in default".
func (a Attributes) String() string {
	text := a.Verb + " " + a.Resource
	if a.APIGroup != "" {
		text += "." + a.APIGroup
	}
	if a.Name != "" {
		text += " " + a.Name
	}
	if a.Namespace != "" {
		text += " in " + a.Namespace
	}
	if a.Cluster != "" {
		text += " of the cluster " + a.Cluster
	}
	return text
}

// writes reports whether a request changes something.
func (a Attributes) writes() bool {
	return !slices.Contains([]string{"get", "list", "watch"}, a.Verb)
}

// covers reports whether the attributes cover those of another request.
func (a Attributes) covers(other Attributes) bool {
	isSameKind := a.Verb == other.Verb && a.APIGroup == other.APIGroup && a.Resource == other.Resource
	isOfCluster := a.Cluster == "" || a.Cluster == other.Cluster
	isInNamespace := a.Namespace == "" || a.Namespace == other.Namespace
	hasName := a.Name == "" || a.Name == other.Name
	return isSameKind && isOfCluster && isInNamespace && hasName
}

// writes reports whether one of the requests that must arrive changes something.
func (r Request) writes() bool { return slices.ContainsFunc(r.Arrives, Attributes.writes) }

// ReviewOf returns which access review must come before a request arrives.
func (r Request) ReviewOf(a Attributes) ReviewKind {
	byDefault := NoReview
	if a.writes() {
		byDefault = AccessReview
	}
	return cmp.Or(r.Review, byDefault)
}

// Parse reads a file strictly. people are the names that --identity gives. clusters are the names of two clusters, if
// there are two. An error has file, line and column, and what was expected.
func Parse(name string, data []byte, people []string, clusters ...string) (*File, error) {
	f := &File{clusters: clusters}
	doc, err := scenarios.DecodeKind(name, data, "a list of a dashboard's requests", "", "", f)
	if err != nil {
		return nil, err
	}
	if path, why := f.findMistake(people); why != "" {
		return nil, fmt.Errorf("%s: %s", doc.At(path), why)
	}
	for i := range f.Requests {
		f.Requests[i].Method = cmp.Or(f.Requests[i].Method, http.MethodGet)
		for _, list := range [][]Attributes{f.Requests[i].Arrives, f.Requests[i].Asks} {
			for n := range list {
				list[n].Cluster = cmp.Or(list[n].Cluster, f.firstCluster())
			}
		}
	}
	return f, nil
}

// firstCluster returns the name of the first of two clusters, or "" if there is one cluster.
func (f *File) firstCluster() string {
	if len(f.clusters) == 0 {
		return ""
	}
	return f.clusters[0]
}

// findMistake returns the place of a mistake in the file, and what is wrong. Both are empty if there is none.
func (f *File) findMistake(people []string) (path, why string) {
	switch {
	case len(f.Requests) == 0:
		return "$", "expected requests: at least one"
	case f.Pause < 0:
		return "$.pause", "expected a duration that is not negative"
	case f.ReviewsWithin < 0:
		return "$.reviewsWithin", "expected a duration that is not negative"
	}
	if i, why := checkAttributes(f.Own, f.clusters); why != "" {
		return fmt.Sprintf("$.own[%d]", i), why
	}
	if f.Trail != nil {
		if why := f.Trail.findMistake(f.clusters); why != "" {
			return "$.trail", why
		}
	}
	names := map[string]bool{}
	for i, r := range f.Requests {
		at := fmt.Sprintf("$.requests[%d]", i)
		if names[r.Name] {
			return at + ".name", fmt.Sprintf("%q is also the name of another request", r.Name)
		}
		names[r.Name] = true
		if field, why := r.findMistake(people, f.clusters); why != "" {
			return at + field, why
		}
	}
	return "", ""
}

// findMistake returns the field of a request that is wrong, and what is wrong with it.
func (r Request) findMistake(people, clusters []string) (field, why string) {
	switch {
	case strings.TrimSpace(r.Name) == "" || strings.Contains(r.Name, "/"):
		return ".name", "expected a name without a slash"
	case r.As != Nobody && !slices.Contains(people, r.As):
		return ".as", fmt.Sprintf("%q is none of the people of --identity (expected %s or %s)", r.As, strings.Join(people, ", "), Nobody)
	case r.Method != "" && !httpguts.ValidHeaderFieldName(r.Method):
		return ".method", fmt.Sprintf("%q is not a method of HTTP", r.Method)
	case !strings.HasPrefix(r.Path, "/"):
		return ".path", fmt.Sprintf("%q: expected the path below --proxy, with a slash before it", r.Path)
	case r.Review != "" && !slices.Contains(reviewKinds(), r.Review):
		return ".review", fmt.Sprintf("%q: expected access, rules, either or none", r.Review)
	case r.Arrives == nil:
		return "", "expected arrives: what must arrive at the API server, [] if nothing may"
	case r.As == Nobody && len(r.Arrives) > 0:
		return ".arrives", "nobody sends this request, and nothing may arrive: expected []"
	case len(r.Asks) > 0 && r.Review == NoReview:
		return ".review", "asks is about access reviews: expected access, rules or either"
	case r.Row != nil && r.Row.Count < 0:
		return ".row.count", "expected how many rows there are, 0 for one"
	}
	for name, value := range r.Headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return ".headers", fmt.Sprintf("%q: %q is not a header", name, value)
		}
	}
	if i, why := checkAttributes(r.Arrives, clusters); why != "" {
		return fmt.Sprintf(".arrives[%d]", i), why
	}
	if i, why := checkAttributes(r.Asks, clusters); why != "" {
		return fmt.Sprintf(".asks[%d]", i), why
	}
	return "", ""
}

// checkAttributes returns which of the attributes are wrong, and what is wrong with them. why is empty if nothing is.
func checkAttributes(list []Attributes, clusters []string) (i int, why string) {
	for i, a := range list {
		if why := a.findMistake(clusters); why != "" {
			return i, why
		}
	}
	return 0, ""
}

// findMistake returns what is wrong with attributes, or "" if nothing is.
func (a Attributes) findMistake(clusters []string) string {
	switch {
	case a.Cluster != "" && len(clusters) == 0:
		return fmt.Sprintf("cluster %q: there is one cluster, unless --clusters names two", a.Cluster)
	case a.Cluster != "" && !slices.Contains(clusters, a.Cluster):
		return fmt.Sprintf("cluster %q: expected %s", a.Cluster, strings.Join(clusters, " or "))
	case a.Verb == "":
		return "expected verb, such as delete"
	case a.Resource == "" || strings.Count(a.Resource, "/") > 1:
		return "expected resource, such as pods or pods/eviction"
	}
	return ""
}
