package surface

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// entriesVariable names the environment variable with the number of impersonations of TestRememberedImpersonations.
const entriesVariable = "AUTHZCONF_ENTRIES"

// allowAll is an authorizer that allows everything.
type allowAll struct{}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (allowAll) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// impersonateOnce sends a request through the filter.
func impersonateOnce(t *testing.T, filter http.Handler, kind string, n int) {
	t.Helper()
	name, group, selector := "bob", "", ""
	switch kind {
	case "names":
		name = fmt.Sprintf("authzconf-user-%07d", n)
	case "groups":
		group = fmt.Sprintf("authzconf-group-%07d", n)
	case "selectors":
		selector = fmt.Sprintf("n=%07d", n)
	}
	req := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/configmaps", nil)
	req.Header.Set(impersonateUser, name)
	if group != "" {
		req.Header.Set("Impersonate-Group", group)
	}
	info := &request.RequestInfo{
		IsResourceRequest: true,
		Verb:              "list",
		APIVersion:        "v1",
		Resource:          "configmaps",
		Namespace:         "default",
		Path:              req.URL.Path,
	}
	info.LabelSelector = selector
	ctx := request.WithUser(request.WithRequestInfo(audit.WithAuditContext(req.Context()), info), &user.DefaultInfo{Name: "impersonator"})
	answer := httptest.NewRecorder()
	filter.ServeHTTP(answer, req.WithContext(ctx))
	if answer.Code != http.StatusOK {
		t.Fatalf("%s %d: %d %s", kind, n, answer.Code, answer.Body)
	}
}

// readOwnHeap returns the bytes of live objects of this process.
func readOwnHeap() int {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// TestRememberedImpersonations: the filter of the API server remembers each impersonation that succeeds, however many there
// are. Nothing is given back when they expire, and little by the next one that succeeds: the heap of the cache keeps a pointer
// to each entry that it has popped (expiringHeap.Pop of k8s.io/apimachinery/pkg/util/cache), and a map of Go keeps its tables.
func TestRememberedImpersonations(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until impersonations have expired")
	}
	entries := 5000
	if text := os.Getenv(entriesVariable); text != "" {
		var err error
		if entries, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"names", "groups", "selectors"} {
		filter := impersonation.WithConstrainedImpersonation(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
			allowAll{},
			serializer.NewCodecFactory(scheme.Scheme),
		)
		impersonateOnce(t, filter, kind, 0)
		m := Memory{Entries: entries, Before: readOwnHeap()}
		began := time.Now()
		for n := range entries {
			impersonateOnce(t, filter, kind, n+1)
		}
		if took := time.Since(began); took > remembered/2 {
			t.Skipf("%d impersonations took %s: the first had expired before the last; the machine is too busy", entries, took)
		}
		m.Full = readOwnHeap()
		time.Sleep(remembered + time.Second)
		m.Expired = readOwnHeap()
		impersonateOnce(t, filter, kind, entries+1)
		m.Next = readOwnHeap()
		runtime.KeepAlive(filter)
		t.Logf(
			"distinct %s: %d impersonations, %d KiB more, %d bytes each; %d %% of it was held when all had expired, %d %% after the next success",
			kind,
			entries,
			m.Growth()>>10,
			m.PerEntry(),
			m.Held(),
			m.Rest(),
		)
		if m.PerEntry() < 100 {
			t.Errorf("%s: %d bytes for each: they are not remembered", kind, m.PerEntry())
		}
		if m.Held() < 90 {
			t.Errorf("%s: %d %% of the growth was held when all had expired, expected nearly everything", kind, m.Held())
		}
		if m.Rest() < 50 {
			t.Errorf(
				"%s: %d %% of the growth was left after the next success, and most of it is known to be: k8s.io/apimachinery may mend that now",
				kind,
				m.Rest(),
			)
		}
	}
}
