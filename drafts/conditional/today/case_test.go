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
	// Description says what the case shows. Section is the section of the KEP.
	Description string `yaml:"description"`
	Section     string `yaml:"section"`
	// Policies are the policies of the authorizer.
	Policies []vectors.Policy `yaml:"policies"`
	// Behind are RBAC manifests, which the authorizer behind ours grants. Objects exist before the requests. The admin
	// creates both.
	Behind  []Made `yaml:"behind"`
	Objects []Made `yaml:"objects"`
	// Mutate is a JSON patch that a mutating webhook applies to every request about the resources of the case. Without
	// it the webhook changes nothing.
	Mutate []map[string]any `yaml:"mutate"`
	// Gates are the feature gates of the API server that differ from the default.
	Gates map[string]bool `yaml:"gates"`
	// Careless over-grants also requests that admission never sees.
	Careless bool `yaml:"careless"`
	// Requests are sent one after another.
	Requests []Request `yaml:"requests"`
}

// Request is a request of a user, with the expected result.
type Request struct {
	By     string              `yaml:"by"`
	Groups []string            `yaml:"groups"`
	Extra  map[string][]string `yaml:"extra"`
	Method string              `yaml:"method"`
	Path   string              `yaml:"path"`
	// Patch is the kind of a PATCH: merge, or apply.
	Patch string         `yaml:"patch"`
	Body  map[string]any `yaml:"body"`
	// Policies replace the policies of the authorizer before the request.
	Policies []vectors.Policy `yaml:"policies"`
	// During replaces the policies between the two phases: when the mutating webhook is called.
	During []vectors.Policy `yaml:"during"`
	// Unregistered says that the API server calls no admission webhook for the request.
	Unregistered bool   `yaml:"unregistered"`
	Expect       Expect `yaml:"expect"`
}

// Expect is what is expected of a request. Fields that are left out are not judged.
type Expect struct {
	Code    int    `yaml:"code"`
	Message string `yaml:"message"`
	// Review is posted as a SelfSubjectAccessReview in addition to the request. Allowed is its expected answer.
	Review  *authorizationv1.ResourceAttributes `yaml:"review"`
	Allowed *bool                               `yaml:"allowed"`
	// Judged and Mutated are the numbers of calls of our validating webhook and of the mutating webhook.
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

// check returns the first rule that the case breaks, and the place.
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
