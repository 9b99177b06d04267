// Package site makes static pages of reports of every product: what came of each, what changed between versions, where
// documents and servers differ, and how much load there was.
package site

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/load"
	"github.com/authzconf/authzconf/verdicts"
)

// NotVerified is the outcome of a report that does not follow from its evidence, whatever it says itself.
const NotVerified = "not verified"

// Report is a report on a site.
type Report struct {
	// Name is that of its folder. Below reports/ no two have the same.
	Name string `json:"name"`
	// Kind is what wrote it, Of what it is about, Outcome what came of it, or NotVerified.
	Kind    string `json:"kind"`
	Of      string `json:"of,omitempty"`
	Outcome string `json:"outcome"`
	// Why are the reasons for the outcome, or, if it is NotVerified, what is wrong.
	Why []string `json:"why,omitempty"`
	// SuiteVersion is the version of authzconf that made it, Scenarios the digest of those that were judged by.
	SuiteVersion string    `json:"suiteVersion,omitempty"`
	Scenarios    string    `json:"scenarios,omitempty"`
	Started      time.Time `json:"started,omitzero"`

	// Page is what its row leads to, within its folder: its own file, or a page that is made of it here.
	Page string `json:"page,omitempty"`
	// Failures and Changes are parts of its page, Plots of that of a load report.
	Failures template.HTML `json:"-"`
	Changes  template.HTML `json:"-"`
	Plots    template.HTML `json:"-"`

	verified *reports.Verification
	files    map[string][]byte
}

// Base is where its page is, from the pages of the site.
func (r *Report) Base() string { return path.Join("reports", r.Name, r.Page) }

// Conformance adds what is shown of a conformance report that was verified.
func (r *Report) Conformance(v *reports.Verification) error {
	r.verified, r.Page = v, indexFile
	r.Outcome, r.Why = string(v.Report.Outcome.Result), v.Report.Outcome.Reasons
	r.SuiteVersion, r.Scenarios, r.Started = v.Report.SuiteVersion, v.Report.ScenariosDigest, v.Report.Started
	var cells []string
	for _, c := range v.Report.Cells {
		cells = append(cells, c.Name)
	}
	r.Of = strings.TrimSpace(v.Report.Implementation.Name+" "+v.Report.Implementation.Version) + ": " + strings.Join(cells, ", ")
	shown, err := v.Show(r.Base())
	r.Failures, r.Changes = shown.Failures, shown.Changes
	r.add(indexFile, shown.Page)
	return err
}

// Load adds what is shown of a load report that was verified.
func (r *Report) Load(dir string) error {
	saved, err := load.LoadSaved(dir)
	if err != nil {
		return err
	}
	result := load.Judge(saved.Run, saved.Thresholds)
	r.Of, r.Page, r.Outcome, r.Why = "profile "+result.Profile, indexFile, string(result.Outcome), result.Reasons
	r.SuiteVersion, r.Started = result.Tool, result.Started
	page, err := load.HTML(&saved.Run, &result)
	if err != nil {
		return err
	}
	r.add(indexFile, page)
	r.Plots, err = load.Plots(&saved.Run, &result)
	return err
}

// The outcomes of certifications. The levels that are certified follow.
const (
	certified    = "certified"
	notCertified = "not certified"
)

// Certified adds what is shown of a certification that was verified.
func (r *Report) Certified(of, version string, levels []string) {
	r.Of, r.Page, r.Outcome, r.SuiteVersion = of, pageFile, notCertified, version
	if len(levels) > 0 {
		r.Outcome = certified + ": " + strings.Join(levels, ", ")
	}
}

// Recorded adds what is shown of a report of another product that was verified, from its copy.
func (r *Report) Recorded(marker string) error {
	var record reports.Record
	err := yaml.Unmarshal(r.files[marker], &record)
	r.Of, r.Page, r.Outcome, r.SuiteVersion = strings.Join(record.Command, " "), marker, string(record.Outcome), record.SuiteVersion
	if r.files[pageFile] != nil {
		r.Page = pageFile
	}
	return err
}

func (r *Report) add(name string, data []byte) {
	if r.files == nil {
		r.files = map[string][]byte{}
	}
	r.files[name] = data
}

// Copy has the site hold a copy of the report, which can be verified there.
func (r *Report) Copy(kind *filing.Kind, dir string) error {
	files, err := kind.Read(dir)
	for name, data := range files {
		r.add(name, data)
	}
	return err
}

const (
	indexFile  = "index.html"
	pageFile   = "report.html" // of reports that bring their own
	reportsDir = "reports"
)

// Folder is a site in a folder, with the files that its site.yaml lists.
var Folder = filing.Kind{
	Name: "site of authzconf", Marker: "site.yaml",
	Head: map[string]string{"kind": "Site", "apiVersion": "authzconf.dev/*"},
	Listed: func(marker []byte) []string {
		var head Site
		if yaml.Unmarshal(marker, &head) != nil {
			return nil
		}
		return slices.DeleteFunc(head.Files, func(name string) bool {
			return !fs.ValidPath(name) || !strings.HasPrefix(name, reportsDir+"/") && path.Ext(name) != ".html"
		})
	},
	Reserved: []string{reportsDir},
}

// Site is site.yaml, and what the pages show.
type Site struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// SuiteVersion is that of the authzconf which judged the reports again.
	SuiteVersion string    `json:"suiteVersion"`
	Reports      []*Report `json:"reports"`
	Files        []string  `json:"files"`
	// Authorizers is the page of certified authorizers, nil if there is none.
	Authorizers []byte `json:"-"`
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// Add adds a report that is in a folder, of which nothing is known yet.
func (s *Site) Add(dir, kind string) *Report {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	base := cmp.Or(strings.Trim(unfit.ReplaceAllString(filepath.Base(dir), "-"), ".-"), "report")
	name := base
	for n := 2; slices.ContainsFunc(s.Reports, func(o *Report) bool { return o.Name == name }); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	r := &Report{Name: name, Kind: kind}
	s.Reports = append(s.Reports, r)
	return r
}

// Verified counts the reports that hold.
func (s *Site) Verified() (n int) {
	for _, r := range s.Reports {
		if r.Outcome != NotVerified {
			n++
		}
	}
	return n
}

// page is a page of a site. Pages are those that there are, in the order of their links.
type page struct {
	*Site
	File, Title string
	Divergences template.HTML
	Pages       []*page
}

var (
	//go:embed site.html.tmpl
	pageTemplate string
	//go:embed site.css
	pageStyle string
	//go:embed site.js
	pageScript string

	pageTemplates = template.Must(template.New("site").Funcs(template.FuncMap{
		"style":  func() template.CSS { return reports.Style() + template.CSS(pageStyle) },
		"script": func() template.JS { return template.JS(pageScript) },
		"plural": reports.Plural,
		"class":  class,
	}).Parse(pageTemplate))
)

// class is that of the style for an outcome; whatever is unknown is not passed.
func class(outcome string) string {
	switch word, _, _ := strings.Cut(outcome, ":"); word {
	case string(verdicts.Passed), certified:
		return "pass"
	case string(verdicts.Failed), notCertified:
		return "fail"
	}
	return "invalid"
}

// Versions are how many versions of authzconf the reports are of, Catalogues how many sets of scenarios.
func (s *Site) Versions() int {
	return distinct(s.Reports, func(r *Report) string { return r.SuiteVersion })
}

// Catalogues is documented at Versions.
func (s *Site) Catalogues() int {
	return distinct(s.Reports, func(r *Report) string { return r.Scenarios })
}

func distinct(all []*Report, of func(*Report) string) int {
	seen := map[string]bool{}
	for _, r := range all {
		if text := of(r); text != "" {
			seen[text] = true
		}
	}
	return len(seen)
}

// Write writes the site to a folder, which has to be missing, empty, or hold an earlier one.
func (s *Site) Write(dir string) error {
	s.APIVersion, s.Kind = reports.FileVersion, "Site"
	var verified []*reports.Verification
	var bases []string
	files := map[string][]byte{}
	for _, r := range s.Reports {
		for name, data := range r.files {
			files[path.Join(reportsDir, r.Name, name)] = data
		}
		if r.verified != nil {
			verified, bases = append(verified, r.verified), append(bases, r.Base())
		}
	}
	divergences, err := reports.Divergences(verified, bases)
	if err != nil {
		return err
	}
	var pages []*page
	for _, p := range []struct {
		file, title string
		there       bool
	}{
		{indexFile, "Reports", true},
		{"versions.html", "What changed between versions", slices.ContainsFunc(s.Reports, func(r *Report) bool { return r.Changes != "" })},
		{"findings.html", "Where documents and servers differ", divergences != ""},
		{"load.html", "Load", slices.ContainsFunc(s.Reports, func(r *Report) bool { return r.Plots != "" })},
		{"authorizers.html", "Certified authorizers", s.Authorizers != nil},
	} {
		if p.there {
			pages = append(pages, &page{Site: s, File: p.file, Title: p.title, Divergences: divergences})
		}
	}
	for _, p := range pages {
		var b bytes.Buffer
		p.Pages = pages
		if err := pageTemplates.Execute(&b, p); err != nil {
			return err
		}
		files[p.File] = b.Bytes()
	}
	if s.Authorizers != nil {
		files["authorizers.html"] = s.Authorizers
	}
	s.Files = slices.Sorted(maps.Keys(files))
	return Folder.WriteReport(dir, s, files)
}
