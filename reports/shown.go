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
	var seen []Finding
	from := map[string]int{} // the first report with a scenario
	for i, v := range all {
		for _, f := range v.Report.Findings {
			if _, ok := from[f.Scenario]; !ok {
				from[f.Scenario] = i
			}
			if !slices.ContainsFunc(seen, func(other Finding) bool { return same(f, other) }) {
				seen = append(seen, f)
			}
		}
	}
	slices.SortStableFunc(seen, func(a, b Finding) int { return cmp.Compare(a.Scenario, b.Scenario) })
	for len(seen) > 0 {
		i := from[seen[0].Scenario]
		n := slices.IndexFunc(seen, func(f Finding) bool { return f.Scenario != seen[0].Scenario })
		if n < 0 {
			n = len(seen)
		}
		view := groupFindings(seen[:n], all[i].Set)[0]
		view.Base = bases[i]
		p.Findings, seen = append(p.Findings, view), seen[n:]
	}
	return p.part("divergences")
}

// Style is that of report.html, for pages that show parts of it.
func Style() template.CSS { return template.CSS(pageStyle) }
