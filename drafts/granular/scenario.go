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

// Kind is the kind of a scenario's file, so that nobody takes it for one of the other scenarios.
const Kind = "GranularScenario"

// Scenario is one behaviour: a request, and attempts at it that differ in one respect.
type Scenario struct {
	ID   string `yaml:"-" json:"id"` // the path of the file without its ending
	Kind string `yaml:"kind" json:"-"`
	// Description says what is shown.
	Description string `yaml:"description" json:"description"`
	Section     string `yaml:"section" json:"section"` // that of KEP-3617
	// Decision is what the KEP leaves open here, and the reference decides.
	Decision string `yaml:"decision" json:"decision,omitempty"`
	// Object is stored before the request, with its status; nothing is for creations.
	Object  map[string]any `yaml:"object" json:"-"`
	Request *Request       `yaml:"request" json:"-"` // what every attempt sends unless it has its own
	// Attempts have at least one that is allowed.
	Attempts []*Attempt `yaml:"attempts" json:"attempts"`
}

// Request is what is sent.
type Request struct {
	Verb        string `yaml:"verb"`        // one of Verbs
	Version     string `yaml:"version"`     // that of the resource; the object's if it is empty
	Subresource string `yaml:"subresource"` // empty or status
	DryRun      bool   `yaml:"dryRun"`
	// Change is an object to create or apply, a patch of the three types, or for an
	// update the merge patch that leads from the stored object to what is sent.
	Change any `yaml:"change"`
}

// Verbs are the kinds of requests.
var Verbs = []string{"create", "update", "jsonPatch", "mergePatch", "strategicMergePatch", "apply"}

// Outcome is what becomes of a request.
type Outcome string

const (
	// Allowed means that it is carried out.
	Allowed Outcome = "allowed"
	// Denied means that it is forbidden.
	Denied Outcome = "denied"
	// Rejected means that the API server finds it invalid: its permissions are enough, or were not looked at yet.
	Rejected Outcome = "rejected"
)

// Attempt is the request of an actor.
type Attempt struct {
	Name   string   `yaml:"name" json:"name"`
	Grants []string `yaml:"grants" json:"grants"` // verbs, on the resource of the request and its status
	// Names restricts the grants to objects with these names.
	Names   []string `yaml:"names" json:"names,omitempty"`
	Request *Request `yaml:"request" json:"-"`
	Outcome Outcome  `yaml:"outcome" json:"outcome"`
	Missing string   `yaml:"missing" json:"missing,omitempty"` // the verb that the message of a denial names
	Reason  string   `yaml:"reason" json:"reason,omitempty"`   // what else the message says
	// Checks are all questions in order, each as "yes VERB" or "no VERB".
	Checks []string `yaml:"checks" json:"checks"`
}

// Wanted returns the request that an attempt sends.
func (s *Scenario) Wanted(a *Attempt) *Request {
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
	if err := s.checkRequest(s.Wanted(a)); err != nil {
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

// checkTwins refuses a denial that nothing turns positive: it proves nothing.
func (s *Scenario) checkTwins() (at string, err error) {
	for i, a := range s.Attempts {
		if a.Outcome == Allowed || slices.ContainsFunc(s.Attempts, a.isTwin) {
			continue
		}
		return fmt.Sprintf("$.attempts[%d]", i), fmt.Errorf("attempt %s: expected a twin that is allowed, with other grants or another request, and not both", a.Name)
	}
	return "", nil
}

// isTwin reports whether another attempt is allowed and differs in one respect: in what the actor holds, or in the request.
func (a *Attempt) isTwin(other *Attempt) bool {
	sameGrants := slices.Equal(a.Grants, other.Grants) && slices.Equal(a.Names, other.Names)
	sameRequest := a.Request == other.Request
	return other.Outcome == Allowed && sameGrants != sameRequest
}
