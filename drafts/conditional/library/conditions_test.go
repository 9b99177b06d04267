package library

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/docs"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

func judged(t *testing.T, change func(*List)) *Report {
	t.Helper()
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	list, err := Known()
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(list)
	}
	r, err := Judge(context.Background(), all, list)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLibrary checks that the library does what it is known to do.
func TestLibrary(t *testing.T) {
	r := judged(t, nil)
	for _, f := range r.Failed {
		t.Errorf("%s: %v", f.ID, f.Differences)
	}
	for _, s := range r.Stale {
		t.Error(s)
	}
}

// TestList checks that a difference that is not listed fails, and that an entry that is no longer true fails.
func TestList(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*List)
		want   string
	}{
		"a divergence left out": {func(l *List) { l.Divergences = l.Divergences[1:] }, "asked: want"},
		"one that is none": {func(l *List) {
			l.Divergences[1].Answers[0].Vectors = append(l.Divergences[1].Answers[0].Vectors, "kep-5681/condition-set/deny-error")
		}, "kep-5681/condition-set/deny-error does not differ"},
		"one about nothing": {func(l *List) {
			l.Divergences = append(l.Divergences, Divergence{Name: "new"})
		}, "divergence new: nothing differs any more"},
		"a field too few":  {func(l *List) { l.Divergences[1].Answers[0].Decision = "" }, "decision: want"},
		"another value":    {func(l *List) { l.Divergences[1].Answers[0].Decision = vectors.NoOpinion }, "decision: want NoOpinion, got Deny"},
		"a field too many": {func(l *List) { l.Divergences[1].Answers[1].Error = l.Divergences[1].Answers[0].Error }, "1 of the fields that are stated do not differ"},
		"something that is there": {func(l *List) {
			probes["there"] = func() bool { return true }
			l.Absent[0].Probe = "there"
		}, "absent review: it is there by now"},
		"a section without vectors": {func(l *List) { l.Sections = append(l.Sections, "Open Questions") }, `section "Open Questions" has no vectors`},
		"a section too few":         {func(l *List) { l.Sections = l.Sections[1:] }, `the section "Proposal" is not listed`},
	} {
		t.Run(name, func(t *testing.T) {
			r := judged(t, c.change)
			if r.Passed() {
				t.Fatal("passed")
			}
			if text := fmt.Sprint(r.Failed, r.Stale); !strings.Contains(text, c.want) {
				t.Errorf("no %q in\n%s", c.want, text)
			}
		})
	}
}

// TestDocs compares the tables of docs/conditional-results.md with the library. With -update it writes them.
func TestDocs(t *testing.T) {
	docs.ComparePart(t, "../../../docs/conditional-results.md", "library", markdown(judged(t, nil)), *update)
}

var update = flag.Bool("update", false, "write golden files")

// markdown are the tables of docs/conditional-results.md.
func markdown(r *Report) string {
	var b strings.Builder
	b.WriteString("| section | vectors | agree | divergent | in part | by our model only | for webhooks |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d |\n", s.Name, s.Total(), s.Agree, s.Divergent, s.Part, s.Absent, s.Webhook)
	}
	for _, part := range []struct {
		title string
		all   []Divergence
	}{{"divergence", r.Divergences}, {"absent", r.Absent}} {
		fmt.Fprintf(&b, "\n| %s | vectors | the KEP | the library | where |\n|---|--:|---|---|---|\n", part.title)
		for _, d := range part.all {
			fmt.Fprintf(
				&b,
				"| %s | %d | %s | %s | `%s` |\n",
				d.Name,
				d.Seen,
				d.Says,
				d.Instead,
				strings.ReplaceAll(d.Upstream, "; ", "`, `"),
			)
		}
	}
	return b.String()
}

// TestTexts compares the texts of the library with testdata/texts.golden. With -update it writes the file.
func TestTexts(t *testing.T) {
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/texts.golden"
	got := texts(t.Context(), all)
	if *update {
		if err := os.WriteFile(golden, []byte(strings.Join(got, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(raw)), "\n")
	for i := range max(len(got), len(want)) {
		line := func(of []string) string { return strings.Join(of[min(i, len(of)):min(i+1, len(of))], "") }
		if g, w := line(got), line(want); g != w {
			t.Errorf("line %d:\n got %s\nwant %s", i+1, g, w)
		}
	}
}
