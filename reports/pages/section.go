package pages

import (
	"bytes"
	"fmt"
	"html/template"
	"strings"
)

// section is a part of report.html: a template, and the data for it.
type section struct {
	// name names the template.
	name string
	// template is the text of the template.
	template string
	// views returns what is shown. A section with nothing to show returns nothing.
	views func(p *page) ([]view, error)
}

// view is what a section shows below one heading.
type view struct {
	// ID is the target of links within the page.
	ID    string
	Title string
	// Count is shown after the title in the table of contents, unless it is 0.
	Count int
	// Data is the data for the template.
	Data any
}

// sections are the sections of report.html in their order.
var sections = []section{
	answersSection,
	failuresSection,
	knownSection,
	figuresSection,
	levelsSection,
	witnessSection,
	productSection,
	matrixSection,
	omittedSection,
	checkSection,
}

// renderedView is a view with the output of its template.
type renderedView struct {
	view
	Body template.HTML
}

// showView returns the list of a section that has a single view.
func showView(v view) ([]view, error) { return []view{v}, nil }

// renderSections executes the templates of all sections.
func renderSections(p *page) (rendered []renderedView, err error) {
	ids := map[string]bool{}
	for _, s := range sections {
		views, err := s.views(p)
		if err != nil {
			return nil, fmt.Errorf("the section %s: %w", s.name, err)
		}
		for _, v := range views {
			var b bytes.Buffer
			if err := templates.ExecuteTemplate(&b, s.name, v.Data); err != nil {
				return nil, err
			}
			v.ID = chooseID(ids, v.ID)
			rendered = append(rendered, renderedView{v, template.HTML(strings.TrimSpace(b.String()))})
		}
	}
	return rendered, nil
}

// chooseID returns an ID that no other section of the page has.
func chooseID(isTaken map[string]bool, preferredID string) string {
	preferredID = strings.Join(strings.Fields(preferredID), "-")
	id := preferredID
	for n := 2; id == "" || isTaken[id]; n++ {
		id = fmt.Sprintf("%s-%d", preferredID, n)
	}
	isTaken[id] = true
	return id
}
