package server

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters/kind"
)

// TestThreeControlPlanes: the API servers of a cluster with three answer by themselves and behind its balancer, each can become
// a target of its own and be killed, and nothing is left afterwards.
func TestThreeControlPlanes(t *testing.T) {
	o := kindServer(t)
	o.ControlPlanes = make([]kind.Worker, 2)
	kubeconfig := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", kubeconfig)
	before := listNetworks(t)
	first, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Stop() }()
	if n := len(first.cluster.(*kind.Cluster).APIServers()); n != 3 {
		t.Errorf("the cluster has %d API servers", n)
	}
	askVersion(t, first.Balancer(), first.Anonymous())
	o.Join = first
	second, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Server{first, second} {
		if len(s.Witness.Mismatches) > 0 {
			t.Errorf("%s is not as asked for: %q", s.Host(), s.Witness.Mismatches)
		}
	}
	if first.Host() == second.Host() {
		t.Errorf("two targets are the API server %s", first.Host())
	}
	killAndRestart(t, first, second, o)
	dir := first.Dir()
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, dir)
	if after := listNetworks(t); after != before {
		t.Errorf("the engine's networks were %q, and are %q", before, after)
	}
	if _, err := os.Stat(kubeconfig); !os.IsNotExist(err) {
		t.Errorf("a kubeconfig is left: %v", err)
	}
}

// killAndRestart kills one of two API servers: the balancer leads to others, and the killed one stays away until it is replaced.
func killAndRestart(t *testing.T, other, killed *Server, o Options) {
	t.Helper()
	if err := killed.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := tryVersion(t.Context(), killed.Host(), killed.Anonymous()); err == nil {
		t.Error("the API server answers that was killed")
	}
	for range 6 { // twice the turn of each
		askVersion(t, other.Balancer(), other.Anonymous())
	}
	if err := killed.Restart(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	askVersion(t, killed.Host(), killed.Anonymous())
	if err := other.Err(); err != nil {
		t.Error(err)
	}
}

func askVersion(t *testing.T, host string, c *rest.Config) {
	t.Helper()
	if err := tryVersion(t.Context(), host, c); err != nil {
		t.Errorf("%s: %v", host, err)
	}
}

// tryVersion asks for the version over a connection of its own.
func tryVersion(ctx context.Context, host string, c *rest.Config) error {
	trust, err := rest.TLSConfigFor(c)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: trust}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/version", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}

// listNetworks returns the engine's networks.
func listNetworks(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", "network", "ls", "--format", "{{.Name}} {{.ID}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
