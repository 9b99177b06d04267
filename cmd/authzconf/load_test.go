package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: authzconf.dev/v1alpha1\nkind: LoadProfile\nname: mine\nnodes: 5\narrivals: {kind: constant, every: 0s}\nblock: 10s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "error: --profile is missing: name a file, or one of apiserver-restart,"},
		{"--profile nothing", `error: there is no profile "nothing": expected a file, or one of`},
		{"--profile ./nothing.yaml", "error: open ./nothing.yaml: no such file"},
		{"--profile " + file, "error: " + file + ":6:8: block 10s"},
		{"--profile denied-flood --every 0s", "error: --every: every 0s: expected how often each agent asks, 1ms to 1h"},
		{"--profile denied-flood --nodes 100000 --every 1s --service-accounts mine", "error: --service-accounts: serviceAccounts \"mine\": expected shared"},
		{"--profile many-accounts --nodes 5000", "error: profile many-accounts with the given flags: 2 variants, 100000 pods that send and 1 tokens each are 200002 tokens to mint"},
		{"--profile denied-flood --pairs 0", "error: --pairs: pairs 0: expected 1 to 1000"},
		{"--profile denied-flood --starts 21", "error: --starts: 21 starts of the servers for 20 pairs: expected a pair for each"},
		{"--profile denied-flood --duration 15s", "error: --duration: block 15s: expected a multiple of 10s"},
		{"--profile denied-flood --variants none", "error: --variants none: the profile denied-flood has denied"},
		{"--profile denied-flood --shards 0", "error: --shards 0: expected 1 to 64"},
		{"--profile steady --every 500ms", "error: profile steady with the given flags: the variant associated-node-cold asks every 500ms"},
		{"--profile denied-flood --engine cloud", `error: --engine "cloud": expected processes or kubernetes`},
		{"--profile denied-flood --provider gke", `error: --provider "gke": expected local, kind or existing`},
		{"--profile one-cluster --provider existing", "error: --provider existing needs --kubeconfig"},
		{"--profile one-cluster --provider existing --kubeconfig /dev/null --kubernetes 1.36", "error: --kubernetes has no effect with --provider existing"},
		{"--profile one-cluster --provider existing --kubeconfig no/such", "error: no/such cannot be read as a kubeconfig"},
		{"--profile one-cluster --provider existing --kubeconfig /dev/null --context x", "error: /dev/null cannot be used: context \"x\" does not exist"},
		{"--profile token-churn --provider existing --webhook-delay 5ms", "error: --authorizer: RBAC alone has no webhook"},
		{"--profile denied-flood --context x", "error: --context has no effect without --provider existing"},
		{"--profile one-cluster --provider existing --kubeconfig /dev/null --node-objects moon", `error: --node-objects "moon": expected bare or kwok`},
		{"--profile denied-flood --node-objects kwok", "error: --node-objects has no effect without --provider existing"},
		{"--profile denied-flood --api-servers https://a:1", "error: --api-servers has no effect without --provider existing"},
		{"--profile denied-flood --provider kind --image x", "error: --image has no effect without --provider existing"},
		{"--profile denied-flood --engine kubernetes", "error: --engine kubernetes: a local control plane runs no pods"},
		{"--profile denied-flood --kind-node-image x", "error: --kind-node-image has no effect without --provider kind"},
		{"--profile denied-flood --kubernetes 9.9", "error: "},
	} {
		var stdout, stderr bytes.Buffer
		code := run(append([]string{"load"}, strings.Fields(c.args)...), &stdout, &stderr)
		want := c.want
		if strings.Contains(c.args, file) {
			want = "error: " + file + ":"
		}
		if code != exitUsage || !strings.HasPrefix(stderr.String(), want) || stdout.Len() > 0 {
			t.Errorf("load %s: %d, %s%s\nwant %s", c.args, code, stdout.String(), stderr.String(), want)
		}
	}
}

func TestLoadDryRun(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run([]string{"load", "--profile", "denied-flood", "--pairs", "3", "--dry-run"}, &stdout, &stderr); code != exitPassed {
		t.Fatalf("%d: %s", code, stderr.String())
	}
	for _, want := range []string{"denied-flood: 100 agents (1 DaemonSet on 100 nodes) with 1 ServiceAccount; each asks every 2s (poisson); 100 connections", "about 1000 requests in a block of 20s", "2 comparisons, 3 pairs each over 3 starts of the servers: 12 blocks of 20s, and 9 for warming up, at least", "denied   gate-on     3"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("does not say %q:\n%s", want, stdout.String())
		}
	}
}

func TestPrintable(t *testing.T) {
	if got := printable("a\x1b[2Jb\u009bc\nd ±é"); got != "a�[2Jb�c�d ±é" {
		t.Errorf("%q", got)
	}
}
