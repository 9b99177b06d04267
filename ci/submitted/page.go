package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/authzconf/authzconf/reports"
)

// The lines between which the table stands on its page.
const (
	tableBegin = "<!-- written by ci/submitted/check -update -->\n"
	tableEnd   = "<!-- end of written by ci/submitted/check -update -->\n"
)

// ourProject is the organisation whose submissions are examples.
const ourProject = "authzconf"

// checkPage compares the table on its page with the one of these submissions, or writes it.
func checkPage(path string, all []*submission, update bool) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return formErrorf("%v", err)
	}
	before, rest, hasBegin := strings.Cut(string(page), tableBegin)
	old, after, hasEnd := strings.Cut(rest, tableEnd)
	if !hasBegin || !hasEnd {
		return formErrorf("%s: the lines are missing between which the table stands: %s", path, strings.TrimSpace(tableBegin))
	}
	table := renderTable(all)
	if table == old {
		return nil
	}
	if !update {
		return fmt.Errorf("%s: the table is not up to date: ci/submitted/check -update writes it", path)
	}
	return os.WriteFile(path, []byte(before+tableBegin+table+tableEnd+after), 0o644)
}

// renderTable returns the table of submissions, behind a sentence that says how many of them are not ours.
func renderTable(all []*submission) string {
	var out strings.Builder
	others := 0
	for _, s := range all {
		if !s.isOurs() {
			others++
		}
	}
	switch others {
	case 0:
		out.WriteString("**No third party has submitted a report yet.** What is in the table is ours, an example.\n\n")
	case 1:
		out.WriteString("One report is by a third party.\n\n")
	default:
		fmt.Fprintf(&out, "%d reports are by third parties.\n\n", others)
	}
	out.WriteString(
		"| organisation, product, version | kind | levels or servers | outcome | cases that passed | authzconf | by |\n|---|---|---|---|--:|---|---|\n",
	)
	for _, s := range all {
		author := "a third party"
		if s.isOurs() {
			author = "**us**: a reference"
		}
		fmt.Fprintf(
			&out,
			"| [%s %s](%s) %s | %s | %s | %s | %s | %s | %s |\n",
			s.readClaim(claimOrganisation),
			s.readClaim(claimProduct),
			s.link(),
			s.readClaim(claimProductVersion),
			s.readClaim(
				claimKind,
			),
			s.readClaim(claimLevels)+s.readClaim(claimServers),
			s.readClaim(claimOutcome),
			countPassed(s.report),
			s.version,
			author,
		)
	}
	return out.String()
}

func (s *submission) isOurs() bool { return s.readClaim(claimOrganisation) == ourProject }

// readClaim returns a claim as it can stand in a table.
func (s *submission) readClaim(name string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "[", `\[`).Replace(s.readme.claims[name].value)
}

// link returns the path of the README from the page.
func (s *submission) link() string {
	return "../" + filepath.ToSlash(filepath.Join(submissionsFolder, s.version, s.name, readmeFile))
}

// countPassed returns how many of the cases that were judged passed.
func countPassed(r *reports.Report) string {
	passed, total := 0, 0
	for _, g := range r.Groups {
		for _, counts := range g.Summary {
			passed, total = passed+counts.Passed, total+counts.Executed()
		}
	}
	return fmt.Sprintf("%d of %d", passed, total)
}
