package verdicts

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestBlamesAreShown checks that everybody who can be blamed is named on the page that says when, and in a test of the
// judge.
func TestBlamesAreShown(t *testing.T) {
	source, err := os.ReadFile("blame.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/report.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("judge_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### Blame\n")
	section, _, _ = strings.Cut(section, "\n### ")
	blames := regexp.MustCompile(`(Blame\w+) Blame = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(blames) < 4 {
		t.Fatalf("blame.go has %d values of Blame", len(blames))
	}
	for _, m := range blames {
		constant, word := m[1], m[2]
		if !strings.Contains(section, "| "+word+" |") && !strings.Contains(section, "**"+word+"**") {
			t.Errorf("docs/report.md, Blame: no %s", word)
		}
		if !strings.Contains(string(tests), constant) {
			t.Errorf("judge_test.go: nothing is blamed on %s", constant)
		}
	}
}
