package kind

import (
	"errors"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/internal/usage"
)

func TestCheckSkew(t *testing.T) {
	for name, tc := range map[string]struct {
		servers, kubelets []string
		problem           string // empty is none
	}{
		"same":                         {[]string{"1.37.1"}, []string{"1.37.1", "1.37.0"}, ""},
		"three minors":                 {[]string{"1.37.1"}, []string{"1.34.4", "1.36.3"}, ""},
		"four minors":                  {[]string{"1.37.1"}, []string{"1.36.3", "1.33.13"}, "a node of Kubernetes 1.33.13 with an API server of 1.37.1: a kubelet may be at most 3 minors older"},
		"newer":                        {[]string{"1.36.3"}, []string{"1.37.1"}, "a node of Kubernetes 1.37.1 with an API server of 1.36.3: a kubelet must not be newer"},
		"newer patch":                  {[]string{"1.37.1"}, []string{"1.37.2"}, ""},
		"servers one minor apart":      {[]string{"1.36.3", "1.37.1", "1.36.3"}, []string{"1.36.3", "1.34.4"}, ""},
		"servers two minors apart":     {[]string{"1.37.1", "1.36.3", "1.35.4"}, nil, "API servers of Kubernetes 1.35.4 and 1.37.1: at most 1 minor may be between them"},
		"newer than the oldest server": {[]string{"1.37.1", "1.36.3"}, []string{"1.37.1"}, "a node of Kubernetes 1.37.1 with an API server of 1.36.3"},
		"too old for the newest":       {[]string{"1.36.3", "1.37.1"}, []string{"1.33.13"}, "a node of Kubernetes 1.33.13 with an API server of 1.37.1"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckSkew(tc.servers, tc.kubelets)
			if tc.problem == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if _, isUsage := errors.AsType[*usage.Error](err); !isUsage || !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("got %v, want %q", err, tc.problem)
			}
		})
	}
}
