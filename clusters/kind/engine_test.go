package kind

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
)

// imageVariable is set by make kind-conformance, if there is an engine to test with.
const imageVariable = "AUTHZCONF_KIND_NODE_IMAGE"

// TestKindNetwork checks that two processes that need the network at the same time get the same one, and that existing
// duplicates, which docker creates for clients that do not check, are reduced to one.
func TestKindNetwork(t *testing.T) {
	if os.Getenv(imageVariable) == "" {
		t.Skipf("%s is not set: make kind-conformance builds an image and runs this", imageVariable)
	}
	t.Setenv("AUTHZCONF_STATE", t.TempDir())
	for _, doubles := range []int{0, 2} {
		name := "authzconf-test-network"
		for range doubles {
			createUnchecked(t, name)
		}
		t.Cleanup(func() {
			left, err := networksOf(context.Background(), name)
			for _, n := range left {
				_, rm := runEngine(context.Background(), "network", "rm", n.ID)
				err = errors.Join(err, rm)
			}
			if err != nil {
				t.Error(err)
			}
		})
		ids := make([]string, 4)
		var wait sync.WaitGroup
		for i := range ids {
			wait.Go(func() {
				n, err := ensureNetwork(t.Context(), name)
				if err != nil {
					t.Error(err)
				}
				ids[i] = n.ID
			})
		}
		wait.Wait()
		found, err := networksOf(t.Context(), name)
		if err != nil || len(found) != 1 {
			t.Fatalf("with %d doubles: %d networks are left, %v", doubles, len(found), err)
		}
		for _, id := range ids {
			if id != found[0].ID {
				t.Errorf("with %d doubles: one got %q, and %q is left", doubles, id, found[0].ID)
			}
		}
		if _, err := runEngine(t.Context(), "network", "rm", found[0].ID); err != nil {
			t.Fatal(err)
		}
	}
}

// createUnchecked creates a network through docker's API as kind's client does in a race, without asking whether the
// name is free. Newer engines refuse that nevertheless.
func createUnchecked(t *testing.T, name string) {
	t.Helper()
	socket, found := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://")
	if !found {
		socket = "/var/run/docker.sock"
	}
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
	}
	answer, err := client.Post(
		"http://docker/networks/create",
		"application/json",
		strings.NewReader(`{"Name":"`+name+`","Driver":"bridge"}`),
	)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusCreated && answer.StatusCode != http.StatusConflict {
		t.Fatalf("docker answers %s", answer.Status)
	}
}
