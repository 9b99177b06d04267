package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/authzconf/authzconf/loadgen/judge"
)

var functions = template.FuncMap{
	"levels":   describeLevels,
	"time":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"duration": formatDuration,
	"mib":      func(n int64) int64 { return n >> 20 },
	"due":      func(v *judge.Variant) int64 { return v.Sent + v.Dropped },
	"ownNode":  func(v judge.Variant) bool { return strings.HasPrefix(v.Variant, "associated-node") },
	"limit": func(name judge.LimitName) string {
		return strings.Replace(string(name), judge.ObjectivePrefix, "SLO", 1)
	},
	"md":    escapeMarkdown,
	"brief": shorten,
	"join":  func(words []string) string { return strings.ReplaceAll(strings.Join(words, " "), "`", "") },
}

// escapeMarkdown escapes what Markdown or HTML would take for markup: names come from files.
var escapeMarkdown = strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", ">", "&gt;", "&", "&amp;", "*", "\\*", "_", "\\_", "`", "\\`",
	"[", "\\[", "]", "\\]", "#", "\\#", "~", "\\~", "\n", " ", "\r", " ").Replace

var (
	//go:embed pages.tmpl
	pagesText string
	pages     = template.Must(template.New("pages").Funcs(functions).Parse(pagesText))
)

// shorten returns the first line of a reason, which may have a log, and what a reader can take in of it.
func shorten(reason string) string {
	first, rest, _ := strings.Cut(reason, "\n")
	if most := 300; len(first) > most {
		first, rest = strings.ToValidUTF8(first[:most], ""), " "
	}
	if rest != "" {
		first += " … (all of it is in the report)"
	}
	return first
}

func markdown(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := pages.ExecuteTemplate(&b, name, data)
	return b.Bytes(), err
}

// writePages writes files to a folder, README.md first: nothing is written beside a page of somebody else.
func writePages(dir string, files map[string][]byte) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = writePage(dir, files["README.md"])
	}
	for name, data := range files {
		if err == nil && name != "README.md" {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
	}
	return err
}

// writePage writes README.md of a folder, unless there is one that does not begin as it does: that is somebody else's.
func writePage(dir string, page []byte) error {
	name := filepath.Join(dir, "README.md")
	before, err := os.ReadFile(name)
	title, _, _ := bytes.Cut(page, []byte("\n"))
	switch {
	case err == nil && !bytes.HasPrefix(before, title):
		return fmt.Errorf("%s is another page than %q; name another folder", name, title)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return os.WriteFile(name, page, 0o644)
}
