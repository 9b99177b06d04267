// Package enforcing is kube-apiserver 1.37.1 with a small enforcer of ours for KEP-5681, Conditional Authorization: no
// release of Kubernetes has one. It is there to try a driver of tests on, and for nothing else; so it is written as a
// test, whose program (go test -c) is the server.
//
// Everything but the enforcer is Kubernetes' own: the authorization filter, admission, the other authorizers. The
// webhooks of the AuthorizationConfiguration are taken out of it and asked by the enforcer, with conditions if the gate
// ConditionalAuthorization is on.
package enforcing

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

const (
	gate   featuregate.Feature = "ConditionalAuthorization"
	plugin                     = "AuthorizationConditionsEnforcer"
	// wireVariable names the revision of the wire that the server speaks, faultVariable what it does wrong on purpose, and
	// formVariable the only field of a configuration that it knows for conditions, if it does not know the newer one.
	wireVariable, faultVariable, formVariable = "ENFORCING_APISERVER_WIRE", "ENFORCING_APISERVER_FAULT", "ENFORCING_APISERVER_FORM"
	olderForm                                 = "conditionsEndpointKubeConfigContext"
)

// TestMain is the server. Without arguments, or with those of go test, there is nothing to do.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-test.") {
		os.Exit(m.Run())
	}
	err := utilfeature.DefaultMutableFeatureGate.AddVersioned(map[featuregate.Feature]featuregate.VersionedSpecs{
		gate: {{Version: utilversion.MajorMinor(1, 37), PreRelease: featuregate.Alpha}},
	})
	if err != nil {
		panic(err)
	}
	e, s := &enforcer{fault: os.Getenv(faultVariable), wire: wire.Newest()}, options.NewServerRunOptions()
	cmd := &cobra.Command{Use: "enforcing-apiserver", SilenceUsage: true, RunE: func(cmd *cobra.Command, _ []string) error {
		return e.run(cmd.Context(), s)
	}}
	for _, flags := range s.Flags().FlagSets {
		cmd.Flags().AddFlagSet(flags)
	}
	cmd.SetContext(server.SetupSignalContext())
	e.register(s.Admission.GenericAdmission)
	os.Exit(cli.Run(cmd))
}

// run is what kube-apiserver does, with the enforcer put in.
func (e *enforcer) run(ctx context.Context, s *options.ServerRunOptions) (err error) {
	if name := os.Getenv(wireVariable); name != "" {
		if e.wire, err = wire.Named(name); err != nil {
			return err
		}
	}
	if err := s.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(s.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return err
	}
	e.on = utilfeature.DefaultFeatureGate.Enabled(gate)
	if e.fault == "stays-off" {
		e.on = !wasOff(filepath.Dir(s.Authorization.AuthorizationConfigurationFile), e.on)
	}
	e.current.Store(&[]*webhook{})
	if plugins := s.Admission.GenericAdmission; e.fault == "off-by-default" && !slices.Contains(plugins.EnablePlugins, plugin) {
		plugins.DisablePlugins = append(plugins.DisablePlugins, plugin)
		e.fault = "starts-without-plugin"
	}
	if e.on && slices.Contains(s.Admission.GenericAdmission.DisablePlugins, plugin) && e.fault != "starts-without-plugin" {
		return fmt.Errorf("the gate %s is on, and the admission plugin %s off", gate, plugin)
	}
	if file := &s.Authorization.AuthorizationConfigurationFile; *file != "" {
		if *file, err = e.takeWebhooks(ctx, *file); err != nil {
			return err
		}
		defer func() { _ = os.Remove(*file) }()
	}
	completed, err := s.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	config, err := app.NewConfig(completed)
	if err != nil {
		return err
	}
	generic := config.KubeAPIs.ControlPlane.Generic
	e.rest = generic.Authorization.Authorizer
	generic.Authorization.Authorizer = e
	config.ApiExtensions.GenericConfig.Authorization.Authorizer = e
	front := config.Aggregator.GenericConfig // whose filters see every request
	front.Authorization.Authorizer = e
	build := front.BuildHandlerChainFunc
	front.BuildHandlerChainFunc = func(h http.Handler, c *server.Config) http.Handler { return e.outside(build(e.reviews(h), c)) }
	ready, err := config.Complete()
	if err != nil {
		return err
	}
	chain, err := app.CreateServerChain(ready)
	if err != nil {
		return err
	}
	prepared, err := chain.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}

// wasOff reports whether the gate is off, or was in a server of the same folder before, which has left a file there.
func wasOff(folder string, on bool) bool {
	marker := filepath.Join(folder, "was-off")
	if !on {
		return os.WriteFile(marker, nil, 0o600) == nil
	}
	_, err := os.Stat(marker)
	return err == nil
}

// takeWebhooks has the enforcer ask the webhooks of an AuthorizationConfiguration, which have to stand before all others,
// and writes a configuration without them. It asks others when the file is changed.
func (e *enforcer) takeWebhooks(ctx context.Context, file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var config map[string]any
	if err := yaml.Unmarshal(raw, &config); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	if err := e.load(raw); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	go e.reload(ctx, file, raw)
	all, _ := config["authorizers"].([]any)
	config["authorizers"] = all[len(e.webhooks()):]
	if raw, err = yaml.Marshal(config); err != nil {
		return "", err
	}
	file += ".without-webhooks.yaml"
	return file, os.WriteFile(file, raw, 0o600)
}

// load takes the webhooks of a configuration.
func (e *enforcer) load(raw []byte) error {
	var typed struct{ Authorizers []webhookConfiguration }
	if err := yaml.Unmarshal(raw, &typed); err != nil {
		return err
	}
	var webhooks []*webhook
	for i, a := range typed.Authorizers {
		if a.Type != "Webhook" {
			continue
		}
		if i != len(webhooks) {
			return fmt.Errorf("the webhook %s stands behind another authorizer", a.Name)
		}
		if form := os.Getenv(formVariable); form == olderForm && a.Webhook.ConditionsReview != nil {
			return fmt.Errorf("strict decoding error: unknown field %q", fmt.Sprintf("authorizers[%d].webhook.conditionsReview", i))
		}
		w, err := newWebhook(a, e.wire, e.fault, e.on || e.fault == "conditions-when-off")
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		webhooks = append(webhooks, w)
	}
	e.current.Store(&webhooks)
	return nil
}

// reload looks at the file of the configuration until the server ends.
func (e *enforcer) reload(ctx context.Context, file string, last []byte) {
	for ctx.Err() == nil && e.fault != "never-reloads" {
		time.Sleep(100 * time.Millisecond)
		raw, err := os.ReadFile(file)
		if err != nil || bytes.Equal(raw, last) {
			continue
		}
		last = raw
		if err := e.load(raw); err != nil {
			fmt.Fprintf(os.Stderr, "%s is not taken: %v\n", file, err)
		}
	}
}
