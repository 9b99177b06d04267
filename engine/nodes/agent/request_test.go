package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestAttempts holds what is sent, and what is made of the answers, against a
// server that refuses one node.
func TestAttempts(t *testing.T) {
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.URL.RequestURI()+" as "+r.Header.Get("Impersonate-User"))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Header.Get("Impersonate-User") == "system:node:other":
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write(
				[]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not this one","reason":"Forbidden","code":403}`),
			)
		case strings.Contains(r.URL.Path, "pods"):
			_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","items":[]}`))
		default:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`))
		}
	}))
	defer server.Close()
	var codes []int
	var text strings.Builder
	for _, node := range []string{"own", "other"} {
		config := &rest.Config{
			Host:        server.URL,
			BearerToken: "secret",
			Impersonate: rest.ImpersonationConfig{UserName: "system:node:" + node},
		}
		config.ContentType = "application/json"
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range requestsAs(client, "own", node) {
			line := a.try(context.Background())
			codes = append(codes, line.Code)
			if err := json.NewEncoder(&text).Encode(line); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantSeen := []string{
		"GET /api/v1/pods?fieldSelector=spec.nodeName%3Down as system:node:own",
		"GET /api/v1/nodes/own as system:node:own",
		"GET /api/v1/pods?fieldSelector=spec.nodeName%3Dother as system:node:other",
		"GET /api/v1/nodes/other as system:node:other",
	}
	if !slices.Equal(seen, wantSeen) {
		t.Errorf("sent %q, want %q", seen, wantSeen)
	}
	if want := []int{200, 401, 403, 403}; !slices.Equal(codes, want) {
		t.Errorf("codes %v, want %v", codes, want)
	}
	if strings.Contains(text.String(), "secret") {
		t.Errorf("the token is in the lines:\n%s", &text)
	}
}

func TestOutcomeOfNoAnswer(t *testing.T) {
	if code, message := outcome(errors.New("connection refused")); code != 0 || message != "connection refused" {
		t.Errorf("got %d %q", code, message)
	}
}

func TestCommandRefuses(t *testing.T) {
	for _, args := range [][]string{{"tokens"}, {"run", "now"}} {
		if err := command(context.Background(), args); err == nil || !strings.Contains(err.Error(), "one of run") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestRunNeedsANode(t *testing.T) {
	t.Setenv(nodeVariable, "")
	if err := command(context.Background(), []string{"run"}); err == nil || !strings.Contains(err.Error(), nodeVariable) {
		t.Errorf("got %v", err)
	}
	t.Setenv(nodeVariable, "own")
	t.Setenv(intervalVariable, "soon")
	if err := command(context.Background(), []string{"run"}); err == nil || !strings.Contains(err.Error(), `"soon"`) {
		t.Errorf("got %v", err)
	}
}

func TestDistinct(t *testing.T) {
	for list, want := range map[string]string{"": "a", "b,a,c": "a b c", "a": "a", "b,b": "a b"} {
		if got := strings.Join(distinct("a", strings.Split(list, ",")), " "); got != want {
			t.Errorf("%q: got %q, want %q", list, got, want)
		}
	}
}
