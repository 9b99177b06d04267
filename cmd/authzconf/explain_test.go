package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// cluster starts an API server that allows user-info impersonation, but not the request itself. Without a version it
// does not answer as an API server.
func cluster(t *testing.T, version string) (kubeconfig string, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case version == "":
			http.Error(w, "no", http.StatusForbidden)
		case r.URL.Path == "/version":
			_, _ = fmt.Fprintf(w, `{"major":"1","minor":%q}`, version)
		default:
			var review authorizationv1.SubjectAccessReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			verb := review.Spec.ResourceAttributes.Verb
			*asked = append(*asked, review.Spec.User+" "+verb)
			review.Status.Allowed = strings.Contains(verb, "user-info")
			review.Status.Reason = "because"
			_ = json.NewEncoder(w).Encode(review)
		}
	}))
	t.Cleanup(srv.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"" + srv.URL + "\"}}]\n" +
		"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig, asked
}

var liveArgs = []string{"explain", "--by", "alice", "--as", "bob", "--verb", "list", "--resource", "pods", "--kubeconfig"}

// TestExplainLive asks a cluster's authorizer each question once, and uses the cluster's version.
func TestExplainLive(t *testing.T) {
	kubeconfig, asked := cluster(t, "36+")
	var out, errs bytes.Buffer
	if code := run(append(liveArgs, kubeconfig), &out, &errs); code != exitPassed {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	for _, want := range []string{
		"kube-apiserver 1.36, ConstrainedImpersonation on\n", "yes, by because",
		"Impersonation is allowed, in mode user-info, but the request is forbidden to bob:",
		`pods is forbidden: User "bob" cannot list resource "pods" in API group "" at the cluster scope: because`,
		`{verbs: ["list"], apiGroups: [""], resources: ["pods"]}  to bob, cluster-wide`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	want := "[alice impersonate-on:user-info:list alice impersonate:user-info bob list]"
	if got := fmt.Sprint(*asked); got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

// TestExplainNoAnswer checks that a missing answer of the cluster is not taken for a permission.
func TestExplainNoAnswer(t *testing.T) {
	kubeconfig, _ := cluster(t, "")
	for _, more := range [][]string{nil, {"--kubernetes", "1.37"}} {
		var out, errs bytes.Buffer
		if code := run(append(append(liveArgs, kubeconfig), more...), &out, &errs); code != exitInvalid {
			t.Errorf("exit %d, want %d", code, exitInvalid)
		}
		if n := strings.Count(errs.String(), "\n"); out.Len() > 0 || n != 1 || !strings.HasPrefix(errs.String(), "error: ") {
			t.Errorf("printed %q and %q", out.String(), errs.String())
		}
	}
}
