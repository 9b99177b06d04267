package replay

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// heedless is an API server that keeps what it is given and allows nothing. It is asked for protobuf, as real ones are.
type heedless struct{ stored map[string]string }

func (h heedless) RoundTrip(r *http.Request) (*http.Response, error) {
	code := http.StatusCreated
	body := `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false,"reason":"no"}}`
	switch {
	case r.Method == http.MethodGet && r.Header.Get("Accept") != "application/json":
		code, body = http.StatusOK, "k8s\x00"
	case r.Method == http.MethodGet:
		code, body = http.StatusOK, h.stored[r.URL.Path]
	case strings.Contains(r.URL.Path, "/rbac.authorization.k8s.io/"):
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		h.stored[r.URL.Path+"/authzconf-x-0"], body = string(raw), string(raw)
	}
	return &http.Response{
		StatusCode: code, Request: r, Body: io.NopCloser(strings.NewReader(body)),
		Header: http.Header{"Content-Type": {"application/json"}},
	}, nil
}

// TestUnappliedGrant: a grant that is kept and never shows is an error with what is kept, and the judge calls it failed.
func TestUnappliedGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := &rest.Config{Host: "http://server", Transport: heedless{map[string]string{}}, QPS: -1}
		config.ContentType, config.AcceptContentTypes = "application/json", "application/vnd.kubernetes.protobuf"
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		s := &scenarios.Scenario{
			ID:     "test/unheeded",
			Suffix: "x",
			Grants: []scenarios.Grant{
				{Subject: scenarios.Subject{User: "alice"}, Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}},
			},
		}
		admin := &provisioner{client: client}
		err = admin.grant(t.Context(), scenarios.RenderRBAC(s))
		u, ok := errors.AsType[*unappliedGrantError](err)
		if !ok {
			t.Fatal(err)
		}
		if u.Reviews < 100 || u.Millis < 14_000 || len(u.Stored) != 2 {
			t.Errorf("asked %d times in %d ms, with %d objects", u.Reviews, u.Millis, len(u.Stored))
		}
		e := &verdicts.Evidence{UnappliedGrant: &u.UnappliedGrant}
		if r := verdicts.Judge(&scenarios.Scenario{}, e); r.Verdict != verdicts.Failed {
			t.Errorf("%s: %s", r.Verdict, r.Reason)
		}
	})
}
