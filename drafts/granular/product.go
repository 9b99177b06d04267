// Package granular runs the scenarios of KEP-3617 (Fine-Grained Authorization) through an enforcer before a real API
// server. No API server implements the KEP. So the suite judges the enforcer, and shows whether the KEP's rules can be
// followed at all.
package granular

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Product is the suite of KEP-3617.
var Product = product.Product{Name: "granular", Command: "granular", New: func(fs *pflag.FlagSet) product.Flags {
	f := &flags{}
	fs.StringVar(&f.scenarios, "scenarios", "", "folder of scenario files to use instead of the built-in ones")
	fs.StringVar(&f.kubernetes, "kubernetes", "", "version of the API server behind the enforcer (default: the newest)")
	f.binaries.RegisterFlags(fs)
	f.binaries.RegisterAPIServers(fs)
	fs.BoolVar(&f.policies, "policies", false, "have the API server enforce what is excluded, by ValidatingAdmissionPolicies")
	fs.BoolVar(&f.inServer, "in-server", false, "the API server implements the KEP itself; --api-server names its program")
	fs.StringToStringVar(&f.gates, "feature-gate", nil, "feature gates of the API server, NAME=true|false")
	fs.StringVar(&f.url, "enforcer-url", "", "https URL of an admission webhook that enforces what is excluded")
	fs.StringVar(&f.ca, "enforcer-ca", "", "authority of its certificate, in PEM (default: those of the system)")
	fs.StringVar(&f.kubeconfig, "enforcer-kubeconfig", "", "file to write a kubeconfig to, by which it may ask the API server")
	fs.StringVar(&f.descriptions, "descriptions", "", "folder of descriptions of fields to use instead of the built-in ones")
	return f
}}

type flags struct {
	scenarios, kubernetes, descriptions string
	binaries                            local.Binaries
	policies, inServer                  bool
	gates                               map[string]string
	url, ca, kubeconfig                 string
}

// Plan reads the scenarios, the descriptions and the flags about the enforcer.
func (f *flags) Plan(i *product.Invocation) (product.Plan, error) {
	scenarios, err := f.loadScenarios(i)
	if err != nil {
		return nil, err
	}
	enforcement, err := f.enforcement(i)
	if err != nil {
		return nil, err
	}
	f.binaries.Progress = i.Messages
	release, err := local.ParseRelease(f.kubernetes)
	if err != nil {
		return nil, fmt.Errorf("--kubernetes: %w", err)
	}
	target := serverOptions(release, &f.binaries)
	if target.FeatureGates, err = f.featureGates(); err != nil {
		return nil, err
	}
	return newPlan(target, enforcement, scenarios), server.CheckAPIServers([]server.Options{target})
}

// featureGates returns the states of the gates that are named.
func (f *flags) featureGates() (map[string]bool, error) {
	states := map[string]bool{}
	for name, value := range f.gates {
		state, err := strconv.ParseBool(value)
		if err != nil {
			return nil, fmt.Errorf("--feature-gate %s=%s: expected true or false", name, value)
		}
		states[name] = state
	}
	return states, nil
}

// serverOptions returns the options of the API server behind the enforcer.
func serverOptions(release local.Release, binaries *local.Binaries) server.Options {
	return server.Options{
		Cell: verdicts.Cell{
			Name:       release.Minor + "-gate-" + string(scenarios.GateDefault),
			Provider:   server.Local,
			Kubernetes: release.Version,
			Gate:       scenarios.GateDefault,
		},
		Release:  release,
		Binaries: binaries,
		NoAudit:  true,
	}
}

func (f *flags) loadScenarios(i *product.Invocation) ([]*Scenario, error) {
	files, err := f.scenarioFiles(i)
	if err != nil {
		return nil, err
	}
	return Load(files)
}

// scenarioFiles returns the files of the scenarios. A record is judged by the scenarios that were given to verify, or
// by the built-in scenarios.
func (f *flags) scenarioFiles(i *product.Invocation) (fs.FS, error) {
	switch {
	case f.scenarios == "" && i.Scenarios == "":
		return Scenarios, nil
	case !i.Verifying():
		files, err := i.ReadFolder(f.scenarios, ".yaml")
		if err != nil {
			return nil, fmt.Errorf("--scenarios %w", err)
		}
		return files, nil
	case i.Scenarios == "":
		return nil, fmt.Errorf("it takes the scenarios from %s: --scenarios says which to judge by", f.scenarios)
	}
	return os.DirFS(i.Scenarios), nil
}

// LoadDescriptions reads the descriptions of fields in a file system, for which flag is the value of --descriptions.
func LoadDescriptions(files fs.FS, flag string) (*permissions.Set, error) {
	set, err := permissions.Load(files)
	if err != nil {
		return nil, fmt.Errorf("--descriptions %s: %w", flag, err)
	}
	return set, nil
}

func (f *flags) loadDescriptions(i *product.Invocation) (*permissions.Set, error) {
	if f.descriptions == "" {
		return permissions.Load(permissions.Descriptions)
	}
	files, err := i.ReadFolder(f.descriptions, ".yaml")
	if err != nil {
		return nil, fmt.Errorf("--descriptions %w", err)
	}
	return LoadDescriptions(files, f.descriptions)
}

// enforcement returns the enforcement that the flags describe.
func (f *flags) enforcement(i *product.Invocation) (enforcement Enforcement, err error) {
	enforcement = Enforcement{Kind: Reference, Steps: enforcer.Reference(), URL: f.url, Kubeconfig: f.kubeconfig}
	switch {
	case f.policies:
		enforcement.Kind = Policies
	case f.inServer:
		enforcement.Kind = APIServer
	case f.url != "":
		enforcement.Kind = Webhook
		if !isWebhookURL(f.url) {
			return enforcement, fmt.Errorf(
				"--enforcer-url %q: expected https://HOST:PORT/PATH: API servers ask no other admission webhooks",
				f.url,
			)
		}
	}
	if enforcement.Descriptions, err = f.loadDescriptions(i); err != nil {
		return enforcement, err
	}
	if f.ca != "" {
		if enforcement.CA, err = i.ReadInput(f.ca); err != nil {
			return enforcement, fmt.Errorf("--enforcer-ca: %w", err)
		}
	}
	if f.kubeconfig != "" && !i.Verifying() {
		return enforcement, checkNewFile("enforcer-kubeconfig", f.kubeconfig)
	}
	return enforcement, nil
}

// isWebhookURL reports whether an API server can ask an admission webhook at a URL.
func isWebhookURL(text string) bool {
	at, err := url.Parse(text)
	if err != nil {
		return false
	}
	return at.Scheme == "https" && at.Host != "" && at.RawQuery+at.Fragment == ""
}

// checkNewFile returns an error unless a file with secrets can be created at a path. An existing file is refused,
// because everybody may be able to read it.
func checkNewFile(flag, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return &usage.Error{
			Problem: fmt.Sprintf("--%s %s is there already", flag, path),
			Hint:    "name a new file, or remove that one if an earlier run has left it",
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return &usage.Error{Problem: fmt.Sprintf("--%s %s: there is no folder %s", flag, path, filepath.Dir(path)), Hint: "make it first"}
	}
	return nil
}
