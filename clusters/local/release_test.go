package local

import (
	"strings"
	"testing"
)

func TestReleases(t *testing.T) {
	got := Releases()
	want := []string{"1.33", "1.34", "1.35", "1.36", "1.37"}
	if len(got) != len(want) {
		t.Fatalf("releases %v, want minors %v", got, want)
	}
	for i, r := range got {
		if r.Minor != want[i] || !strings.HasPrefix(r.Version, want[i]+".") || r.String() != r.Version {
			t.Errorf("release %d is %+v, want minor %s", i, r, want[i])
		}
		pin := readPin("kubernetes-" + r.Minor)
		// A staging module of another version than Kubernetes' own would give a server that is not a release.
		staging := "0." + strings.TrimPrefix(r.Version, "1.")
		for _, module := range []string{"k8s.io/apiserver", "k8s.io/api", "k8s.io/client-go", "k8s.io/component-base"} {
			if v := pin.version(module); v != staging {
				t.Errorf("%s: %s is pinned to %s, want %s", r.Version, module, v, staging)
			}
		}
	}
	got[0].Minor = "changed"
	if Releases()[0].Minor != "1.33" {
		t.Error("a caller can change the releases")
	}
}

func TestParseRelease(t *testing.T) {
	newest := Releases()[len(Releases())-1]
	for _, test := range []struct {
		in, want string
		ok       bool
	}{
		{"1.37", "1.37", true},
		{"v1.37", "1.37", true},
		{" 1.36 ", "1.36", true},
		{newest.Version, newest.Minor, true},
		{"v" + newest.Version, newest.Minor, true},
		{"", newest.Minor, true},
		{"9.99", "", false},
		{"1.37.99", "1.37", true}, // whether it is available shows later
		{"1.38", "", false},
		{"1.38.0-", "", false},
		{"1", "", false},
		{"1.3", "", false},
		{"v", "", false},
		{" ", "", false},
		{"latest", "", false},
		{"1.37\n1.36", "", false},
	} {
		got, err := ParseRelease(test.in)
		if test.ok {
			if err != nil || got.Minor != test.want {
				t.Errorf("ParseRelease(%q) = %v, %v, want %s", test.in, got, err, test.want)
			}
			continue
		}
		wantUsageError(t, err, "1.33 (1.33.", "1.37 (1.37.")
	}
}

func TestEmulated(t *testing.T) {
	r, err := ParseRelease("1.36")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		in, want string
		ok       bool
	}{
		{"", "", true},
		{"1.36", "1.36", true},
		{"v1.35", "1.35", true},
		{"1.2", "1.2", true}, // kube-apiserver says how far back it reaches
		{"1.37", "", false},
		{"1.36.0", "", false},
		{"2", "", false},
		{"x.y", "", false},
	} {
		got, err := r.parseEmulated(test.in)
		if got != test.want || (err == nil) != test.ok {
			t.Errorf("emulated(%q) = %q, %v", test.in, got, err)
		}
		if err != nil {
			wantUsageError(t, err)
		}
	}
}
