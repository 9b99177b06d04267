// Package site makes static pages of reports of every product: what came of each, what changed between versions, where
// documents and servers differ, how much load there was, and which authorizers are certified.
package site

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/load"
)

const (
	// NotVerified is the outcome of a report that does not follow from its evidence, whatever it says itself.
	NotVerified = "not verified"
	// Certified and NotCertified are those of certifications.
	Certified    = "certified"
	NotCertified = "not certified"
)

const (
	indexFile       = "index.html"
	pageFile        = "report.html" // of reports that bring their own
	authorizersFile = "authorizers.html"
	reportsDir      = "reports"
)

// Report is a report on a site.
type Report struct {
	// Name is that of its folder. Below reports/ no two have the same.
	Name string `json:"name"`
	// Kind is what wrote it, Of what it is about, Outcome what came of it, or NotVerified.
	Kind    string `json:"kind"`
	Of      string `json:"of,omitempty"`
	Outcome string `json:"outcome"`
	// Why are the reasons for the outcome; if it is NotVerified, what is wrong; of a certification its levels.
	Why []string `json:"why,omitempty"`
	// SuiteVersion is the version of authzconf that made it, Scenarios the digest of those that were judged by.
	SuiteVersion string    `json:"suiteVersion,omitempty"`
	Scenarios    string    `json:"scenarios,omitempty"`
	Started      time.Time `json:"started,omitzero"`
	// Page is what its row leads to, within its folder; empty if there is nothing to be believed.
	Page string `json:"page,omitempty"`
	// Failures and Changes are parts of its page, Plots of that of a load report.
	Failures template.HTML `json:"-"`
	Changes  template.HTML `json:"-"`
	Plots    template.HTML `json:"-"`

	verified *reports.Verification
	files    map[string][]byte
}

// Base is where its page is, from the pages of the site.
func (r *Report) Base() string { return path.Join(reportsDir, r.Name, r.Page) }

// Copy has the site hold a copy of a report that was verified, which readers can verify again.
func (r *Report) Copy(kind *filing.Kind, dir string) (err error) {
	if r.files, err = kind.Read(dir); err != nil {
		return err
	}
	if r.Page = kind.Marker; r.files[pageFile] != nil {
		r.Page = pageFile
	}
	if signature, err := os.ReadFile(filepath.Join(dir, reports.SignatureFile)); err == nil {
		r.files[reports.SignatureFile] = signature
	}
	return nil
}

// Recorded adds what is shown of a report of another product that was verified, from its copy.
func (r *Report) Recorded(marker string) error {
	var record reports.Record
	err := yaml.Unmarshal(r.files[marker], &record)
	r.Of, r.Outcome, r.SuiteVersion = strings.Join(record.Command, " "), string(record.Outcome), record.SuiteVersion
	return err
}

// Conformance adds what is shown of a verified conformance report. Its page is made anew: an old one may be large.
func (r *Report) Conformance(v *reports.Verification) error {
	r.verified, r.Page = v, indexFile
	r.Outcome, r.Why = string(v.Report.Outcome.Result), v.Report.Outcome.Reasons
	r.SuiteVersion, r.Scenarios, r.Started = v.Report.SuiteVersion, v.Report.ScenariosDigest, v.Report.Started
	r.Of = strings.TrimSpace(v.Report.Implementation.Name + " " + v.Report.Implementation.Version)
	for _, c := range v.Report.Cells {
		r.Of += ", " + c.Name
	}
	shown, err := v.Show(r.Base())
	r.Failures, r.Changes, r.files[indexFile] = shown.Failures, shown.Changes, shown.Page
	return err
}

// Load adds what is shown of a load report that was verified.
func (r *Report) Load(dir string) error {
	saved, err := load.LoadSaved(dir)
	if err != nil {
		return err
	}
	result := load.Judge(saved.Run, saved.Thresholds)
	r.Of, r.Outcome, r.Why = "profile "+result.Profile, string(result.Outcome), result.Reasons
	r.SuiteVersion, r.Started = result.Tool, result.Started
	r.Plots, err = load.Plots(&saved.Run, &result)
	return err
}

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
	APIVersion   string    `json:"apiVersion"`
	Kind         string    `json:"kind"`
	SuiteVersion string    `json:"suiteVersion"` // that of the authzconf which judged the reports again
	Reports      []*Report `json:"reports"`
	Files        []string  `json:"files"`
	Authorizers  []byte    `json:"-"` // the page of certified authorizers, nil if there is none
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
	s.Reports = append(s.Reports, &Report{Name: name, Kind: kind, Outcome: NotVerified, files: map[string][]byte{}})
	return s.Reports[len(s.Reports)-1]
}

// Verified counts the reports that hold.
func (s *Site) Verified() (n int) {
	return seq.Count(s.Reports, func(r *Report) bool { return r.Outcome != NotVerified })
}

// Versions counts those of authzconf that made the reports, Catalogues the sets of scenarios that they were judged by.
func (s *Site) Versions() int { return s.distinct(func(r *Report) string { return r.SuiteVersion }) }

// Catalogues is explained at Versions.
func (s *Site) Catalogues() int { return s.distinct(func(r *Report) string { return r.Scenarios }) }

func (s *Site) distinct(of func(*Report) string) int {
	return sets.New(seq.Map(s.Reports, of)...).Delete("").Len()
}

// Divergences are where documents and servers differ, as all conformance reports have seen it.
func (s *Site) Divergences() (template.HTML, error) {
	var verified []*reports.Verification
	var bases []string
	for _, r := range s.Reports {
		if r.verified != nil {
			verified, bases = append(verified, r.verified), append(bases, r.Base())
		}
	}
	return reports.Divergences(verified, bases)
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
	}).Parse(pageTemplate))
)

// page is a page of a site, a template of its name. Pages are those that have content, in the order of their links.
type page struct {
	*Site
	File    string
	Content template.HTML
	Pages   []*page
}

// Write writes the site to a folder, which has to be missing, empty, or hold an earlier one.
func (s *Site) Write(dir string) error {
	s.APIVersion, s.Kind = reports.FileVersion, "Site"
	var pages []*page
	for _, file := range []string{indexFile, "versions.html", "findings.html", "load.html", authorizersFile} {
		var b bytes.Buffer
		if err := pageTemplates.ExecuteTemplate(&b, file, s); err != nil {
			return err
		}
		if content := strings.TrimSpace(b.String()); content != "" {
			pages = append(pages, &page{Site: s, File: file, Content: template.HTML(content)})
		}
	}
	files := map[string][]byte{}
	for _, p := range pages {
		var b bytes.Buffer
		p.Pages = pages
		if err := pageTemplates.Execute(&b, p); err != nil {
			return err
		}
		files[p.File] = b.Bytes()
	}
	if s.Authorizers != nil {
		back := `<body><p><a href="` + indexFile + `">All reports</a></p>`
		files[authorizersFile] = bytes.Replace(s.Authorizers, []byte("<body>"), []byte(back), 1)
	}
	for _, r := range s.Reports {
		for name, data := range r.files {
			files[path.Join(reportsDir, r.Name, name)] = data
		}
	}
	s.Files = slices.Sorted(maps.Keys(files))
	return Folder.WriteReport(dir, s, files)
}
