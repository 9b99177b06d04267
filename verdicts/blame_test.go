package verdicts

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestBlamesAreDocumented wants everybody who can be blamed on the page that says when.
func TestBlamesAreDocumented(t *testing.T) {
	source, err := os.ReadFile("blame.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/report.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### Blame\n")
	section, _, _ = strings.Cut(section, "\n### ")
	blames := regexp.MustCompile(`Blame = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(blames) < 4 {
		t.Fatalf("blame.go has %d values of Blame", len(blames))
	}
	for _, m := range blames {
		if !strings.Contains(section, "| "+m[1]+" |") && !strings.Contains(section, "**"+m[1]+"**") {
			t.Errorf("docs/report.md, Blame: no %s", m[1])
		}
	}
}
