package scenarios

import (
	"net/http"
	"net/url"
	"reflect"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
)

// TestRequestInfo checks that a query which cannot be decoded is read as the library reads it, and that nothing is
// logged.
func TestRequestInfo(t *testing.T) {
	var logged []string
	klog.SetLogger(funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))
	defer klog.ClearLogger()
	var queries []string
	for _, bad := range []string{"", "fieldSelector=a", "fieldSelector=a=b&limit=x", "limit=x", "timeoutSeconds=soon", "labelSelector=a+in+b", "fieldSelector=metadata.name=n&limit=x", "labelSelector=&limit=x", "fieldSelector=&fieldSelector=a%3Db&limit=x", "limit=%zz"} {
		for _, watch := range []string{"", "&watch=1", "&watch", "&watch=false", "&watch=FALSE", "&watch=0", "&watch=yes", "&watch=false&watch=1"} {
			queries = append(queries, bad+watch)
		}
	}
	bad := 0
	for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/n/pods/p", "/api/v1/watch/pods", "/api/v1/watch", "/apis/apps/v1/namespaces/n/deployments/d/scale", "/version"} {
		for _, method := range []string{"GET", "HEAD", "POST", "DELETE", "PATCH", "OPTIONS"} {
			for _, query := range queries {
				address := &url.URL{Path: path, RawQuery: query}
				got, failed := RequestInfo(method, address)
				if len(logged) > 0 {
					t.Fatalf("%s %s: %q", method, address, logged)
				}
				want, err := requestInfo.NewRequestInfo(&http.Request{Method: method, URL: address, Header: http.Header{}})
				bad += len(logged)
				logged = nil
				if !reflect.DeepEqual(got, want) || (failed == nil) != (err == nil) {
					t.Errorf("%s %s: %+v (%v), the library %+v (%v)", method, address, got, failed, want, err)
				}
			}
		}
	}
	if bad == 0 {
		t.Error("the library has logged nothing")
	}
}
