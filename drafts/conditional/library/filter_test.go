package library

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// proceeds reports whether the library's filter passes on the request of a vector.
func proceeds(t *testing.T, m *vectors.APIServer) bool {
	t.Helper()
	run := &libraryRun{m: m, want: &vectors.Want{}}
	chain, err := run.chain(m.Chain)
	if err != nil {
		t.Fatal(err)
	}
	passed := false
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true })
	filter := filters.WithAuthorization(next, chain, scheme.Codecs)
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "someone"})
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, Verb: m.Request.Verb, APIGroup: m.Request.APIGroup, APIVersion: m.Request.APIVersion,
		Resource: m.Request.Resource, Subresource: m.Request.Subresource, Namespace: "default", Name: "any",
	})
	answer := httptest.NewRecorder()
	filter.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	if isRefused := answer.Code == http.StatusForbidden; isRefused == passed {
		t.Errorf("the filter answers %d, and passes the request on: %t", answer.Code, passed)
	}
	return passed
}

// TestFilterFailsClosed checks the authorization filter of the library with authorizers that allow on conditions. It
// refuses these requests where the KEP wants that (section "Computing a concrete decision from a conditional
// authorization chain": "fails closed"), and lets requests pass that are allowed without conditions. It also refuses
// where the KEP lets the request go on, because it asks for no conditions yet.
func TestFilterFailsClosed(t *testing.T) {
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	refused, passed, notYet := 0, 0, 0
	for _, v := range all {
		if v.APIServer == nil || !strings.HasPrefix(v.ID, "kep-5681/filter/") {
			continue
		}
		t.Run(v.ID, func(t *testing.T) {
			want, got := v.APIServer.WantIn(vectors.Eager), proceeds(t, v.APIServer)
			switch {
			case want.Authorized == vectors.ConditionalAllow && *want.Proceeds:
				notYet++
				if got {
					t.Error("it goes on on conditions: the filter asks for them by now")
				}
			case got != *want.Proceeds:
				t.Errorf("it goes on: %t, want %t", got, *want.Proceeds)
			case got:
				passed++
			default:
				refused++
			}
		})
	}
	if refused == 0 || passed == 0 || notYet == 0 {
		t.Errorf("%d are refused, %d passed on, and %d would go on: one of these has no vectors", refused, passed, notYet)
	}
	t.Logf("%d are refused, %d passed on, and %d would go on", refused, passed, notYet)
}
