package local

import (
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

func TestSupportIsOfTheReleases(t *testing.T) {
	supports := Supports()
	for _, s := range supports {
		if s.Newest == "" || version.MustParseGeneric(s.Newest).LessThan(version.MustParseGeneric(s.Release.Version)) {
			t.Errorf("%s is pinned, and upstream.yaml has %q as the newest patch: read the releases again", s.Release, s.Newest)
		}
	}
	if len(upstream.Minors) != len(supports) {
		t.Errorf("upstream.yaml has %d minors, and %d are pinned", len(upstream.Minors), len(supports))
	}
	if newest := supports[len(supports)-1]; !newest.IsSupported {
		t.Errorf("the newest release is %s", newest)
	}
	for i, s := range supports[1:] {
		if supports[i].IsSupported && !s.IsSupported {
			t.Errorf("%s has ended, and the older %s has not", s.Release, supports[i].Release)
		}
	}
}

// TestSupportIsNotStale checks that what the project says about its minors was read after the newest of the pinned
// modules was published.
func TestSupportIsNotStale(t *testing.T) {
	read, err := time.Parse(time.DateOnly, SupportRead())
	if err != nil {
		t.Fatal(err)
	}
	if read.After(time.Now()) {
		t.Errorf("read on %s, which has not come yet", SupportRead())
	}
	b := &Binaries{}
	module, err := b.PinnedModule(t.Context(), Newest())
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.GoOutput(t.Context(), module, "list", "-m", "-f", "{{.Time.Format \"2006-01-02\"}}", kubernetesModule)
	if err != nil {
		t.Skipf("nothing says when the module was published: %v", err)
	}
	published, err := time.Parse(time.DateOnly, strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	if read.Before(published) {
		t.Errorf(
			"upstream.yaml was read on %s, and %s was published on %s: read the releases again",
			SupportRead(),
			Newest(),
			published.Format(time.DateOnly),
		)
	}
}

func TestPagesSayWhatIsSupported(t *testing.T) {
	for page, wanted := range map[string][]string{
		"../../README.md":       {SupportedMinors()},
		"../../docs/running.md": {SupportRead()},
	} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if page != "../../README.md" {
			for _, s := range Supports() {
				wanted = append(wanted, "| "+s.Release.Minor+" | "+s.Release.Version+" | "+s.String()+" |")
			}
		}
		for _, want := range wanted {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s does not say %q", page, want)
			}
		}
	}
}
