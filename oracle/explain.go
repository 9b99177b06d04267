package oracle

import (
	_ "embed" // the words
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/authzconf/authzconf/scenarios"
)

//go:embed explain.tmpl
var explainText string

// Explain says, for a person with a 403 on the screen, what a server was asked, in order, what it answered and
// why, and what was missing. It is called with the prediction that the server made of the request.
func (s *Server) Explain(p Prediction, imp *scenarios.Impersonate, r Request) string {
	var needs []Need
	switch p.Outcome {
	case scenarios.ImpersonationForbidden:
		needs = s.Missing(p.Requestor, imp, r)
	case scenarios.RequestForbidden:
		needs = []Need{s.need("", []stage{{runs: [][]question{{{"", subject(p), r.Attributes}}}}})} // of the request itself
	}
	asked := 0
	words := template.Must(template.New("").Funcs(template.FuncMap{
		"rest": rest, "describe": Describe, "object": object, "near": s.NearMisses, "subject": subject,
		"extra": scenarios.RenderExtra, "join": strings.Join, "replace": strings.ReplaceAll,
		"quoted": func(list []string) string { return strings.Join(scenarios.Each(list, strconv.Quote), ", ") },
		"next":   func() int { asked++; return asked },
	}).Parse(explainText))
	var out strings.Builder
	if err := words.ExecuteTemplate(&out, "explanation", map[string]any{"Prediction": p, "Request": r, "Needs": needs}); err != nil {
		panic(fmt.Sprintf("explain.tmpl: %v", err)) // it is compiled in
	}
	return out.String()
}

// ExplainScenario explains the requests of a scenario, one after the other, on a server as ServerFor makes it.
func ExplainScenario(s *scenarios.Scenario, server *Server, fixtures fs.FS) (string, error) {
	text := ""
	for i, st := range s.Steps {
		sent, err := exchanges(s.ID, i, st)
		if err != nil {
			return "", err
		}
		words := ""
		if len(sent) == 0 {
			if words, err = server.pass(s, st, fixtures); err != nil {
				return "", err
			}
		}
		for _, x := range sent {
			p := server.Receive(x.by, s.Requestors[x.by], x.imp, x.request)
			words += server.Explain(p, x.imp, x.request)
		}
		text += fmt.Sprintf("Step %d. %s\n", i, words)
	}
	return text, nil
}

// object is what is asked about, in words: pods in namespace shop.
func object(group, resource, subresource, namespace, name string) string {
	text := scenarios.FullResource(resource, subresource)
	if group != "" {
		text += "." + group
	}
	if name != "" {
		text += fmt.Sprintf(" %q", name)
	}
	if namespace != "" {
		text += " in namespace " + namespace
	}
	return text
}

// rest are the reviews behind impersonation.
func rest(p Prediction) []Segment {
	return slices.DeleteFunc(slices.Clone(p.Segments), func(g Segment) bool {
		return len(g.Runs) != 1 || len(g.Runs[0]) == 0 || g.Runs[0][0].Mode != ""
	})
}

func subject(p Prediction) scenarios.User {
	if p.User != nil {
		return *p.User
	}
	return p.Requestor
}
