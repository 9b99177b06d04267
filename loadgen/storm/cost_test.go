package storm

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// sampled returns a profile in which each of a number of functions was seen as often as its number says, and one more
// that has no name.
func sampled(t *testing.T, functions int) []byte {
	t.Helper()
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}}
	for i := 1; i <= functions; i++ {
		f := &profile.Function{ID: uint64(i), Name: fmt.Sprintf("f%d", i)}
		l := &profile.Location{ID: uint64(i), Line: []profile.Line{{Function: f}}}
		p.Function, p.Location = append(p.Function, f), append(p.Location, l)
		p.Sample = append(p.Sample,
			&profile.Sample{Location: []*profile.Location{l, p.Location[0]}, Value: []int64{int64(i), int64(i) * 1e7}},
		)
	}
	p.Sample = append(p.Sample, &profile.Sample{Value: []int64{5, 5e7}})
	var out bytes.Buffer
	if err := p.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestFlat(t *testing.T) {
	got, err := sumFunctions(bytes.NewReader(sampled(t, mostFunctions+3)))
	if err != nil {
		t.Fatal(err)
	}
	n := int64(mostFunctions + 3)
	if got.Samples != n*(n+1)/2+5 || len(got.Functions) != mostFunctions || got.Functions["f3"] != 0 || got.Functions["f4"] != 4 {
		t.Errorf("%d samples, %d functions, %v", got.Samples, len(got.Functions), got.Functions)
	}
	if _, err := sumFunctions(strings.NewReader("no profile")); err == nil {
		t.Error("what is no profile was read")
	}
}

func TestFetchProfile(t *testing.T) {
	want, status := sampled(t, 1), http.StatusOK
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/debug/pprof/profile" || r.URL.Query().Get("seconds") != "20" {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(status)
		_, _ = w.Write(want)
	}))
	defer s.Close()
	admin := &rest.Config{
		Host:            s.URL,
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})},
	}
	if got, err := fetchProfile(context.Background(), admin, 20*time.Second); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v, %d bytes", err, len(got))
	}
	status = http.StatusForbidden
	if _, err := fetchProfile(context.Background(), admin, 20*time.Second); !apierrors.IsForbidden(err) {
		t.Errorf("who may not is told %v", err)
	}
}
