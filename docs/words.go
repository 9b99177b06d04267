package docs

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// wordsFile has the words of the project, and those that are struck out.
//
//go:embed words.yaml
var wordsFile []byte

// words is what words.yaml has.
type words struct {
	Glossary  []wordSection   `json:"glossary"`
	StruckOut []struckOutWord `json:"struckOut"`
	Left      []leftWord      `json:"left"`
}

// wordSection is a part of the glossary.
type wordSection struct {
	Title string         `json:"title"`
	Words []glossaryWord `json:"words"`
}

// glossaryWord is a word with what it means: by the declaration that carries it, or as it is written here.
type glossaryWord struct {
	Word string `json:"word"`
	From string `json:"from"`
	Is   string `json:"is"`
}

// struckOutWord is a word that is not used, and what is said in its place.
type struckOutWord struct {
	Find   string   `json:"find"`
	Unless string   `json:"unless"`
	Say    string   `json:"say"`
	Names  []string `json:"names"`
}

// leftWord is a hit that has not been mended, or that has a reason to stay.
type leftWord struct {
	In   string `json:"in"`
	Find string `json:"find"`
	Why  string `json:"why"`
}

// readWords returns the words.
func readWords(t testing.TB) *words {
	t.Helper()
	w := &words{}
	if err := yaml.UnmarshalStrict(wordsFile, w); err != nil {
		t.Fatalf("docs/words.yaml: %v", err)
	}
	return w
}

// search returns the hits of the word in a text.
func (w struckOutWord) search(text string) (hits []string) {
	for _, hit := range regexp.MustCompile("(?i)"+w.Find).FindAllStringIndex(text, -1) {
		found := text[hit[0]:hit[1]]
		if w.Unless == "" {
			hits = append(hits, found)
			continue
		}
		// What stands before belongs to it: "each of which" is another turn than "of which".
		before := strings.LastIndexAny(strings.TrimRight(text[:hit[0]], " \n"), " \n") + 1
		if !regexp.MustCompile(w.Unless).MatchString(text[before:hit[1]]) {
			hits = append(hits, found)
		}
	}
	return hits
}

// CheckWords reports an error for each word in a text that words.yaml strikes out. where is the file, or the command, that has it.
func CheckWords(t testing.TB, where, text string) {
	t.Helper()
	all := readWords(t)
	text = strings.Join(strings.Fields(text), " ")
	for _, word := range all.StruckOut {
		for _, hit := range word.search(text) {
			if !all.isLeft(where, hit) {
				t.Errorf("%s: %q is struck out: say %s", where, hit, word.Say)
			}
		}
	}
}

// isLeft reports whether the list has a hit.
func (w *words) isLeft(where, hit string) bool {
	for _, left := range w.Left {
		if left.In == where && strings.Contains(strings.ToLower(hit), strings.ToLower(left.Find)) {
			return true
		}
	}
	return false
}

// glossary returns the page.
func (w *words) glossary(t testing.TB, define func(from string) string) string {
	t.Helper()
	var b strings.Builder
	for _, section := range w.Glossary {
		fmt.Fprintf(&b, "\n## %s\n\n| word | |\n|---|---|\n", section.Title)
		for _, word := range section.Words {
			meaning := word.Is
			if word.From != "" {
				meaning = define(word.From)
			}
			fmt.Fprintf(&b, "| **%s** | %s |\n", strings.ReplaceAll(word.Word, ", ", "**, **"), strings.ReplaceAll(meaning, "|", `\|`))
		}
	}
	return b.String()
}
