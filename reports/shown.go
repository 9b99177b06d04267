package reports

import (
	"bytes"
	"cmp"
	"html/template"
	"slices"
	"strings"
)

// Shown is a report that was verified, as a site shows it.
type Shown struct {
	// Page is report.html as this authzconf makes it. Failures and Changes are parts of it, with links to it.
	Page              []byte
	Failures, Changes template.HTML
}

// Show makes what is shown of a report whose page is at base.
func (v *Verification) Show(base string) (s Shown, err error) {
	p := newPage(v.Report, v.Evidence, v.Set)
	if s.Page, err = renderHTML(p); err != nil {
		return s, err
	}
	p.Base = base
	if s.Failures, err = p.part("failures"); err != nil {
		return s, err
	}
	s.Changes, err = p.part("changes")
	return s, err
}

func (p *page) part(name string) (template.HTML, error) {
	var b bytes.Buffer
	err := pageTemplates.ExecuteTemplate(&b, name, p)
	return template.HTML(strings.TrimSpace(Redact(b.String()))), err
}

// Divergences shows where documents and servers differ, as the reports at bases have seen it. What several have seen is
// there once.
func Divergences(all []*Verification, bases []string) (template.HTML, error) {
	p := page{Base: "."}
	for i, v := range all {
		for _, f := range v.Report.Findings {
			p.find(f, v.Set, bases[i])
		}
	}
	slices.SortStableFunc(p.Findings, func(a, b findingView) int { return cmp.Compare(a.Scenario, b.Scenario) })
	return p.part("divergences")
}

// Style is that of report.html, for pages that show parts of it.
func Style() template.CSS { return template.CSS(pageStyle) }
