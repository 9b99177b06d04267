package engines

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/rego"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/drafts/granular"
	"github.com/authzconf/authzconf/scenarios"
)

// TestGranularVerbs asks policy engines for the granular verbs of KEP-3617, such as granular:label(mine.io): in each attempt of
// the scenarios, all that an API server has to ask, with the grants of the attempt. Each engine has to answer as the scenario
// says, and so as RBAC does. Resource, namespace and name are the same everywhere: only verbs differ.
func TestGranularVerbs(t *testing.T) {
	grants, questions := granularQuestions(t)
	p := (&policy.Policy{Grants: grants}).Index()
	for name, load := range map[string]func(testing.TB, *policy.Policy) func(spec) (bool, error){
		"Cedar": loadCedarPolicy, "Open Policy Agent": loadRego, "OpenFGA": loadFGA,
	} {
		t.Run(name, func(t *testing.T) {
			isAllowed := load(t, p)
			allowed := 0
			for _, q := range questions {
				got, err := isAllowed(q.spec)
				if err != nil {
					t.Fatal(err)
				}
				if got != q.want {
					t.Errorf("%s: %s: allowed is %t, expected %t", q.attempt, q.spec.ResourceAttributes.Verb, got, q.want)
				}
				if got {
					allowed++
				}
			}
			t.Logf("%d questions of %d attempts, %d allowed", len(questions), len(grants), allowed)
			if allowed == 0 || allowed == len(questions) {
				t.Errorf("%d of %d questions are allowed: that shows nothing", allowed, len(questions))
			}
		})
	}
}

// granularQuestion is what an API server asks in an attempt.
type granularQuestion struct {
	attempt string
	spec    spec
	want    bool
}

// granularQuestions returns a grant for each attempt of the scenarios, to a user of its own, and all checks.
func granularQuestions(t testing.TB) (grants []scenarios.Grant, questions []granularQuestion) {
	t.Helper()
	all, err := granular.Load(granular.Scenarios)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		for _, a := range s.Attempts {
			if len(a.Grants) == 0 || len(a.Names) > 0 { // a grant for some names allows nothing about the others
				continue
			}
			user := s.ID + "/" + a.Name
			grants = append(grants, scenarios.Grant{
				Subject:   scenarios.Subject{User: user},
				Verbs:     a.Grants,
				APIGroups: []string{"apps"},
				Resources: []string{"deployments"},
				Namespace: "shop",
			})
			for _, check := range a.Checks {
				answer, verb, _ := strings.Cut(check, " ")
				questions = append(questions,
					granularQuestion{
						user,
						authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
							Verb: verb, Group: "apps", Version: "v1", Resource: "deployments", Namespace: "shop", Name: "web",
						}},
						answer == "yes",
					},
				)
			}
		}
	}
	return grants, questions
}

// export returns the policy in the form of an engine that has one file.
func export(t testing.TB, p *policy.Policy, format string) []byte {
	t.Helper()
	files, err := p.Export(format)
	if err != nil {
		t.Fatal(err)
	}
	return files[""]
}

func loadCedarPolicy(t testing.TB, p *policy.Policy) func(spec) (bool, error) {
	return loadCedar(t, export(t, p, "cedar"))
}

// loadRego evaluates the policy with Open Policy Agent as a library.
func loadRego(t testing.TB, p *policy.Policy) func(spec) (bool, error) {
	query, err := rego.New(rego.Query("data.authzconf.certification.allow"), rego.Module("policy.rego", string(export(t, p, "rego")))).
		PrepareForEval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return func(s spec) (bool, error) {
		raw, err := json.Marshal(s)
		if err != nil {
			return false, err
		}
		var input any
		if err := json.Unmarshal(raw, &input); err != nil {
			return false, err
		}
		results, err := query.Eval(context.Background(), rego.EvalInput(input))
		return results.Allowed(), err
	}
}

// loadFGA starts a server of OpenFGA, and loads the policy as the adapter for webhooks does.
func loadFGA(t testing.TB, p *policy.Policy) func(spec) (bool, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, closeConnection, err := connectFGA(ctx, startFGA(t), export(t, p, "openfga"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeConnection() })
	return func(s spec) (bool, error) { return w.allowed(t.Context(), s) }
}

// startFGA starts OpenFGA on a free port, until the test ends, and returns its address.
func startFGA(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "openfga")
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	server := exec.Command(
		program,
		"run",
		"--playground-enabled=false",
		"--metrics-enabled=false",
		"--http-enabled=false",
		"--log-level",
		"error",
		"--grpc-addr",
		address,
	)
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil {
			t.Log(fmt.Errorf("OpenFGA: %w", err))
		}
	})
	return address
}

// freeAddress returns an address of this machine that nothing listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
