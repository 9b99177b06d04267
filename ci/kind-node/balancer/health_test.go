package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestChooseHealthy: connections go to API servers that are healthy, and to all of them where none is.
func TestChooseHealthy(t *testing.T) {
	backend := func(code int) string {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != healthPath {
				code = http.StatusNotFound
			}
			w.WriteHeader(code)
		}))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "https://")
	}
	well, starting, gone := backend(http.StatusOK), backend(http.StatusInternalServerError), "127.0.0.1:1"
	for name, c := range map[string]struct{ backends, want []string }{
		"one that starts, and one that is gone": {[]string{starting, well, gone}, []string{well}},
		"none is healthy":                       {[]string{starting, gone}, []string{starting, gone}},
		"none at all":                           {nil, nil},
	} {
		if got := chooseHealthy(t.Context(), c.backends); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
