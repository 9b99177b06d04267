package deputy

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/docs"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/product/producttest"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

var update = flag.Bool("update", false, "write the parts of pages that the tests make")

// runSmallDashboard serves the small dashboard in front of the contexts of KUBECONFIG until it is killed.
func runSmallDashboard(address, trail, fault string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	file, err := os.OpenFile(trail, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	others, err := configsOfContexts(os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	return (&http.Server{Addr: address, Handler: &smallDashboard{config: config, others: others, trail: file, fault: fault}, ErrorLog: log.Default()}).ListenAndServe() //nolint:gosec // only tests send requests
}

// configsOfContexts returns how to reach each context of a kubeconfig, by their names.
func configsOfContexts(path string) (map[string]*rest.Config, error) {
	file, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	configs := map[string]*rest.Config{}
	for name := range file.Contexts {
		if configs[name], err = clientcmd.NewNonInteractiveClientConfig(*file, name, nil, nil).ClientConfig(); err != nil {
			return nil, err
		}
	}
	return configs, nil
}

// dashboardFlags returns the flags of a run on the small dashboard at an address.
func dashboardFlags(address, trail string, more ...string) []string {
	return append([]string{
		"deputy",
		"--proxy=http://" + address,
		"--requests=" + dashboardFile,
		"--trail=" + trail,
		"--timeout=20s",
		"--identity=alice@corp[periscope-tier:triage]=header:" + sessionHeader + ": alice@corp",
		"--identity=bob@corp=header:" + sessionHeader + ": bob@corp",
	}, more...)
}

// runDashboard runs deputy with a command that starts the small dashboard, right or with a fault.
func runDashboard(t *testing.T, fault string, more ...string) *product.RunResult {
	t.Helper()
	address, trail := freeAddress(t), filepath.Join(t.TempDir(), "trail")
	if err := os.WriteFile(trail, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	command := fmt.Sprintf("--proxy-command=%s='dashboard|%s|%s|%s' exec %s", helperEnv, address, trail, fault, os.Args[0])
	return producttest.Run(context.Background(), t, Product, dashboardFlags(address, trail, append(more, command)...)...)
}

// checkRun compares the outcome of a run with the expected one, and verifies the report.
func checkRun(t *testing.T, made *product.RunResult, want verdicts.Verdict) {
	t.Helper()
	if o := made.Report.Outcome; o.Result != want {
		t.Errorf("%+v", o)
	}
	if differences := verifyChanged(t, made, "", "", ""); len(differences) > 0 {
		t.Errorf("verify: %q", differences)
	}
}

// TestDashboardRun tries the small dashboard as its owner would, with a command that starts it and with both ways of
// impersonation, and verifies the report.
func TestDashboardRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	t.Parallel() // it mostly waits
	for fault, want := range map[string]verdicts.Verdict{"": verdicts.Passed, "takes another name": verdicts.Failed} {
		t.Run("it "+fault, func(t *testing.T) {
			ways := "--impersonation=legacy,constrained"
			if fault != "" {
				ways = "--impersonation=legacy"
			}
			made := runDashboard(t, fault, ways)
			checkRun(t, made, want)
			if fault != "" {
				docs.ComparePart(t, "../docs/deputy-dashboard.md", "what a run says", showRun(made.Report), *update)
			}
			for _, g := range made.Report.Groups {
				if len(g.Cases) != 11 {
					t.Errorf("%s: %d cases", g.Name, len(g.Cases))
				}
			}
		})
	}
}

// showRun returns the verdict of each case of a report, and why those failed that did.
func showRun(r *reports.Report) string {
	var b strings.Builder
	b.WriteString("```\n")
	for _, g := range r.Groups {
		for _, c := range g.Cases {
			fmt.Fprintf(&b, "%s  %s\n", c.Verdict, c.Case)
			if c.Reason != "" {
				fmt.Fprintf(&b, "        %s\n", c.Reason)
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// TestDashboardRunTwoClusters does the same as TestDashboardRun with two clusters. The command gets a context for each.
func TestDashboardRunTwoClusters(t *testing.T) {
	sample.InTurn(t, 2, 3)
	if testing.Short() {
		t.Skip("starts control planes")
	}
	t.Parallel() // it mostly waits
	for fault, want := range map[string]verdicts.Verdict{"": verdicts.Passed, "acts at the first cluster": verdicts.Failed} {
		t.Run("it "+fault, func(t *testing.T) {
			checkRun(t, runDashboard(t, fault, "--clusters=east,west", "--requests=testdata/twoclusters.yaml"), want)
		})
	}
}

// TestDashboardOnExistingCluster tries the small dashboard on a running cluster whose API server writes no file, but
// sends its audit log to the webhook of authzconf.
func TestDashboardOnExistingCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	ctx, dir, webhook := context.Background(), t.TempDir(), freeAddress(t)
	p := dashboardOptions(t)
	o := target(t)
	o.KubeAPIServerPath = wrapAPIServer(ctx, t, dir, o, webhook)
	behind, err := startPlaneFor(ctx, o, dashboardServiceAccount(), p.grants(false), p.objects())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = behind.Stop() })
	kubeconfig := filepath.Join(dir, "admin.conf")
	admin := behind.Admin()
	err = rest.LoadTLSFiles(admin)
	data, problem := clusters.Kubeconfig("admin", admin)
	if err := errors.Join(err, problem, os.WriteFile(kubeconfig, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile(dashboardFile)
	requests, trail := filepath.Join(dir, "requests.yaml"), filepath.Join(dir, "trail")
	text := "account: " + dashboardAccount + "\n" + string(example)
	if err := errors.Join(err, os.WriteFile(requests, []byte(text), 0o600), os.WriteFile(trail, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(trail, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	config := behind.Anonymous()
	config.BearerToken = behind.token
	subject := httptest.NewServer(&smallDashboard{config: config, trail: file})
	defer subject.Close()
	made := producttest.Run(ctx, t, Product, dashboardFlags(strings.TrimPrefix(subject.URL, "http://"), trail, "--requests="+requests, "--kubeconfig="+kubeconfig, "--audit-log="+webhookSource+webhook)...)
	if result := made.Report.Outcome; result.Result != verdicts.Passed {
		t.Errorf("%+v", result)
	}
	if differences := verifyChanged(t, made, "", "", ""); len(differences) > 0 {
		t.Errorf("verify: %q", differences)
	}
}

// wrapAPIServer returns a program that starts a kube-apiserver which sends its audit log to an address.
func wrapAPIServer(ctx context.Context, t *testing.T, dir string, o server.Options, address string) string {
	t.Helper()
	backend, err := clusters.Kubeconfig("webhook", &rest.Config{Host: "http://" + address})
	config := filepath.Join(dir, "audit-webhook.conf")
	if err := errors.Join(err, os.WriteFile(config, backend, 0o600)); err != nil {
		t.Fatal(err)
	}
	return wrapAPIServerWith(ctx, t, dir, o, "--audit-webhook-config-file="+config, "--audit-webhook-batch-max-wait=100ms")
}

// wrapAPIServerWith returns a program that starts a kube-apiserver with further flags.
func wrapAPIServerWith(ctx context.Context, t *testing.T, dir string, o server.Options, flags ...string) string {
	t.Helper()
	program, err := o.Binaries.KubeAPIServer(ctx, o.Release)
	if err != nil {
		t.Fatal(err)
	}
	wrapper := filepath.Join(dir, "kube-apiserver")
	script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\" %s\n", program, strings.Join(flags, " "))
	if err := os.WriteFile(wrapper, []byte(script), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	return wrapper
}
