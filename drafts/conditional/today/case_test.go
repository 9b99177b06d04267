package today

import (
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/scenarios"
)

//go:embed cases/*.yaml
var files embed.FS

// Case is a use case of the KEP as an API server of today can enforce it.
type Case struct {
	// ID is the file's name.
	ID string `yaml:"-"`
	// Description says what is shown, Section where the KEP says it.
	Description string `yaml:"description"`
	Section     string `yaml:"section"`
	// Policies are those of the authorizer.
	Policies []vectors.Policy `yaml:"policies"`
	// Behind are what the authorizer behind ours grants, as RBAC manifests, and
	// Objects what is there before, both made by the admin.
	Behind  []Made `yaml:"behind"`
	Objects []Made `yaml:"objects"`
	// Mutate is a JSON patch that a mutating webhook makes of every request about
	// the resources of the case; none is a webhook that only looks.
	Mutate []map[string]any `yaml:"mutate"`
	// Gates are feature gates of the API server, if not the default ones.
	Gates map[string]bool `yaml:"gates"`
	// Careless over-grants what admission never sees, too.
	Careless bool `yaml:"careless"`
	// Requests follow one another.
	Requests []Request `yaml:"requests"`
}

// Request is one of a user, and what has to come of it.
type Request struct {
	By     string              `yaml:"by"`
	Groups []string            `yaml:"groups"`
	Extra  map[string][]string `yaml:"extra"`
	Method string              `yaml:"method"`
	Path   string              `yaml:"path"`
	// Patch is the content type of a PATCH: merge, or apply.
	Patch string         `yaml:"patch"`
	Body  map[string]any `yaml:"body"`
	// Policies replace the authorizer's before the request.
	Policies []vectors.Policy `yaml:"policies"`
	// During replace them between the two phases: when the mutating webhook is
	// called.
	During []vectors.Policy `yaml:"during"`
	// Unregistered says that the API server calls no admission webhook.
	Unregistered bool   `yaml:"unregistered"`
	Expect       Expect `yaml:"expect"`
}

// Expect is what is seen of a request. What is left out is not judged.
type Expect struct {
	Code    int    `yaml:"code"`
	Message string `yaml:"message"`
	// Review is asked as a SelfSubjectAccessReview beside the request; Allowed is
	// its answer.
	Review  *authorizationv1.ResourceAttributes `yaml:"review"`
	Allowed *bool                               `yaml:"allowed"`
	// Judged and Mutated are how often our admission webhook and the mutating one
	// were called.
	Judged  *int `yaml:"judged"`
	Mutated *int `yaml:"mutated"`
}

// Cases reads the cases that come with authzconf.
func Cases() ([]Case, error) { return loadCases(files, "cases") }

func loadCases(in fs.FS, folder string) (out []Case, err error) {
	names, err := fs.Glob(in, path.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		raw, err := fs.ReadFile(in, name)
		if err != nil {
			return nil, err
		}
		c, err := ParseCase(name, raw)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// ParseCase reads a case strictly. An error has file, line and column.
func ParseCase(name string, raw []byte) (Case, error) {
	c := Case{ID: strings.TrimSuffix(path.Base(name), ".yaml")}
	doc, err := scenarios.Decode(name, raw, "a case", &c)
	if err != nil {
		return c, err
	}
	at, problem := c.check()
	if problem != "" {
		return c, fmt.Errorf("%s: %s", doc.At(at), problem)
	}
	return c, nil
}

// check names the first rule that is broken, and where.
func (c Case) check() (at, problem string) {
	if c.Description == "" || c.Section == "" {
		return "$", "description and section are needed"
	}
	if _, err := reference.NewSnapshot(c.Policies); err != nil {
		return "$.policies", err.Error()
	}
	allowed, refused := 0, 0
	for i, r := range c.Requests {
		at := fmt.Sprintf("$.requests[%d]", i)
		switch {
		case !slices.Contains([]string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, r.Method):
			return at + ".method", fmt.Sprintf("method %q: expected GET, POST, PUT, PATCH or DELETE", r.Method)
		case r.By == "" || !strings.HasPrefix(r.Path, "/"):
			return at, "by and a path that begins with / are needed"
		case (r.Method == http.MethodPatch) != (r.Patch == "merge" || r.Patch == "apply"):
			return at, "patch is merge or apply for PATCH, and left out otherwise"
		case r.Expect.Code == 0:
			return at, "expect.code is needed"
		case (r.Expect.Review == nil) != (r.Expect.Allowed == nil):
			return at, "expect.review and expect.allowed go together"
		}
		for field, policies := range map[string][]vectors.Policy{"policies": r.Policies, "during": r.During} {
			if _, err := reference.NewSnapshot(policies); err != nil {
				return at + "." + field, err.Error()
			}
		}
		if r.Expect.Code < http.StatusMultipleChoices {
			allowed++
		} else {
			refused++
		}
	}
	if allowed == 0 || refused == 0 {
		return "$", "one request that is allowed and one that is refused are needed: either alone proves nothing"
	}
	return "", ""
}
