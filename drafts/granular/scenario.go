package granular

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// Scenarios holds the scenarios that come with authzconf.
//
//go:embed kep-3617
var Scenarios embed.FS

// Kind is the kind of a scenario's file. It prevents that such a file is used as another kind of scenario.
const Kind = "GranularScenario"

// Scenario describes one behaviour: a request, and attempts to send it that differ in one respect.
type Scenario struct {
	ID   string `yaml:"-" json:"id"` // the path of the file without its ending
	Kind string `yaml:"kind" json:"-"`
	// Description says what the scenario shows.
	Description string `yaml:"description" json:"description"`
	Section     string `yaml:"section" json:"section"` // the section of KEP-3617
	// Decision is a decision of the reference where the KEP leaves the behaviour open.
	Decision string `yaml:"decision" json:"decision,omitempty"`
	// Object is stored before the request, with its status. It is empty if the request creates the object.
	Object  map[string]any `yaml:"object" json:"-"`
	Request *Request       `yaml:"request" json:"-"` // the request of every attempt without its own
	// Attempts are the attempts. At least one is allowed.
	Attempts []*Attempt `yaml:"attempts" json:"attempts"`
}

// Request is the request of an attempt.
type Request struct {
	Verb        string `yaml:"verb"`        // one of Verbs
	Version     string `yaml:"version"`     // the version of the resource; empty means that of the object
	Subresource string `yaml:"subresource"` // empty or status
	DryRun      bool   `yaml:"dryRun"`
	// Change is an object to create or apply, or a patch of one of the three types. For an update it is the merge patch
	// that turns the stored object into the object that is sent.
	Change any `yaml:"change"`
}

// Verbs are the kinds of requests.
var Verbs = []string{"create", "update", "jsonPatch", "mergePatch", "strategicMergePatch", "apply"}

// Outcome is the outcome of a request.
type Outcome string

const (
	// Allowed means that the request is carried out.
	Allowed Outcome = "allowed"
	// Denied means that the request is forbidden.
	Denied Outcome = "denied"
	// Rejected means that the API server finds the request invalid. The actor has the permissions, or they were not
	// checked yet.
	Rejected Outcome = "rejected"
)

// Attempt is the request of an actor.
type Attempt struct {
	Name   string   `yaml:"name" json:"name"`
	Grants []string `yaml:"grants" json:"grants"` // verbs on the resource of the request and its status
	// Names restricts the grants to objects with these names.
	Names   []string `yaml:"names" json:"names,omitempty"`
	Request *Request `yaml:"request" json:"-"`
	Outcome Outcome  `yaml:"outcome" json:"outcome"`
	Missing string   `yaml:"missing" json:"missing,omitempty"` // the verb that the message of a denial names
	Reason  string   `yaml:"reason" json:"reason,omitempty"`   // a text that the message also contains
	// Checks are all questions to the authorizer in order, each as "yes VERB" or "no VERB".
	Checks []string `yaml:"checks" json:"checks"`
}

// RequestOf returns the request that an attempt sends.
func (s *Scenario) RequestOf(a *Attempt) *Request {
	return cmp.Or(a.Request, s.Request)
}

// Load reads every scenario below a folder, sorted by ID. The error has everything that is wrong.
func Load(files fs.FS) ([]*Scenario, error) {
	out, err := scenarios.LoadAll(files, ".yaml", func(name string, data []byte) ([]*Scenario, error) {
		s, err := Parse(name, data)
		return []*Scenario{s}, err
	})
	if err == nil && len(out) == 0 {
		err = errors.New("it contains no scenarios")
	}
	slices.SortFunc(out, func(a, b *Scenario) int { return strings.Compare(a.ID, b.ID) })
	return out, err
}

var validName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// Parse reads one scenario. name is the path of its file.
func Parse(name string, data []byte) (*Scenario, error) {
	s := &Scenario{ID: strings.TrimSuffix(name, ".yaml")}
	y, err := scenarios.DecodeKind(name, data, "a scenario", "", Kind, s)
	if err != nil {
		return nil, err
	}
	at, err := s.check()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", y.At(at), err)
	}
	return s, nil
}

func (s *Scenario) check() (at string, err error) {
	switch {
	case s.Description == "" || s.Section == "":
		return "$", errors.New("expected a description and a section of KEP-3617")
	case len(s.Attempts) == 0:
		return "$", errors.New("expected attempts")
	}
	names := map[string]bool{}
	for i, a := range s.Attempts {
		at := fmt.Sprintf("$.attempts[%d]", i)
		if a == nil || !validName.MatchString(a.Name) || names[a.Name] {
			return at, errors.New("expected a name of its own, in lower case")
		}
		names[a.Name] = true
		if err := s.checkAttempt(a); err != nil {
			return at, fmt.Errorf("attempt %s: %w", a.Name, err)
		}
	}
	return s.checkTwins()
}

func (s *Scenario) checkAttempt(a *Attempt) error {
	if err := s.checkRequest(s.RequestOf(a)); err != nil {
		return err
	}
	for _, c := range a.Checks {
		if !isCheck(c) {
			return fmt.Errorf("check %q: expected yes or no, and a verb", c)
		}
	}
	switch {
	case !slices.Contains([]Outcome{Allowed, Denied, Rejected}, a.Outcome):
		return fmt.Errorf("outcome is %q, expected allowed, denied or rejected", a.Outcome)
	case (a.Outcome == Denied) != (a.Missing != ""):
		return errors.New("expected the missing verb for a denial, and only then")
	case len(a.Checks) == 0:
		return errors.New("expected the checks: at least the ordinary permission is asked for")
	}
	return nil
}

// isCheck reports whether a text is an answer and a verb, such as "yes patch".
func isCheck(text string) bool {
	answer, verb, _ := strings.Cut(text, " ")
	return verb != "" && slices.Contains([]string{"yes", "no"}, answer)
}

func (s *Scenario) checkRequest(r *Request) error {
	switch {
	case r == nil:
		return errors.New("expected a request, its own or the scenario's")
	case !slices.Contains(Verbs, r.Verb):
		return fmt.Errorf("verb is %q, expected one of %s", r.Verb, strings.Join(Verbs, ", "))
	case r.Subresource != "" && r.Subresource != "status":
		return fmt.Errorf("subresource is %q, expected status or none", r.Subresource)
	case s.Object == nil && r.Verb != "create" && r.Verb != "apply":
		return fmt.Errorf("%s needs a stored object", r.Verb)
	case r.Change == nil:
		return errors.New("expected a change")
	case s.Object != nil:
		return nil
	}
	if o, _ := r.Change.(map[string]any); o["apiVersion"] == nil || o["kind"] == nil {
		return errors.New("expected apiVersion and kind of the object that is created")
	}
	return nil
}

// checkTwins refuses an attempt that is denied or rejected unless there is a similar attempt that is allowed. Without
// it, the denial proves nothing.
func (s *Scenario) checkTwins() (at string, err error) {
	for i, a := range s.Attempts {
		if a.Outcome == Allowed || slices.ContainsFunc(s.Attempts, a.isTwin) {
			continue
		}
		return fmt.Sprintf("$.attempts[%d]", i), fmt.Errorf("attempt %s: expected a twin that is allowed, with other grants or another request, and not both", a.Name)
	}
	return "", nil
}

// isTwin reports whether another attempt is allowed and differs in exactly one respect: in the grants, or in the
// request.
func (a *Attempt) isTwin(other *Attempt) bool {
	sameGrants := slices.Equal(a.Grants, other.Grants) && slices.Equal(a.Names, other.Names)
	sameRequest := a.Request == other.Request
	return other.Outcome == Allowed && sameGrants != sameRequest
}
