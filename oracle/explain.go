package oracle

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// Explain says, for a person with a 403 on the screen, what a server was asked, in order, what it answered and
// why, and what was missing. It is called with the prediction that the server made of the request.
func (s *Server) Explain(p Prediction, imp *scenarios.Impersonate, r Request) string {
	x := &explanation{server: s}
	x.line("%s %s%s.", p.Requestor.Name, request(r.Attributes), as(p.Wanted))
	x.line("")
	for _, at := range p.Trace {
		x.attempt(at)
	}
	x.rest(p)
	x.line("")
	x.result(p)
	x.missing(p, imp, r)
	return x.String()
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

// explanation is the text as it grows.
type explanation struct {
	strings.Builder
	server *Server
	asked  int
}

func (x *explanation) line(format string, args ...any) {
	_, _ = fmt.Fprintf(x, strings.TrimRight(format, " ")+"\n", args...)
}

// request says what is done, in words: list pods in namespace "shop".
func request(a Attributes) string {
	if !a.ResourceRequest {
		return fmt.Sprintf("asks to %s the path %s", a.Verb, a.Path)
	}
	return "asks to " + a.Verb + " " + object(a.APIGroup, a.Resource, a.Subresource, a.Namespace, a.Name)
}

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

func as(imp *scenarios.User) string {
	if imp == nil {
		return ", as itself"
	}
	text := fmt.Sprintf(", impersonating %q", imp.Name)
	if imp.UID != "" {
		text += fmt.Sprintf(" with UID %q", imp.UID)
	}
	if len(imp.Groups) > 0 {
		text += fmt.Sprintf(" in groups %q", imp.Groups)
	}
	if len(imp.Extra) > 0 {
		text += " with extra " + scenarios.RenderExtra(imp.Extra)
	}
	return text
}

// attempt tells what became of one mode.
func (x *explanation) attempt(at Attempt) {
	name := string(at.Mode)
	if at.Remembered {
		name += ", tried first because it was the last to succeed for this requestor"
	}
	if at.NotApplicable != "" {
		x.line("%-15s  does not apply: %s", name, at.NotApplicable)
		return
	}
	x.line("%s", name)
	for _, g := range at.Segments {
		x.segment(g)
	}
	if at.Cached != "" {
		x.line("      remembered: %s", at.Cached)
	}
	if at.Refused {
		x.line("      refused without asking: %s", strings.Join(at.Messages, "\n      or: "))
	}
}

// rest are the reviews behind impersonation.
func (x *explanation) rest(p Prediction) {
	headed := false
	for _, g := range p.Segments {
		if len(g.Runs) == 1 && len(g.Runs[0]) > 0 && g.Runs[0][0].Mode == "" {
			if !headed {
				x.line("the request itself")
				headed = true
			}
			x.segment(g)
		}
	}
}

func (x *explanation) segment(g Segment) {
	if len(g.Runs) > 1 {
		x.line("      the keys of extra come in any order; the first denial ends it:")
	}
	for _, run := range g.Runs {
		for _, r := range run {
			x.review(r)
		}
	}
}

func (x *explanation) review(r Review) {
	x.asked++
	d := Describe(r)
	what := d.Verb + " " + object(d.Group, d.Resource, d.Subresource, d.Namespace, d.Name)
	if d.Path != "" {
		what = d.Verb + " the path " + d.Path
	}
	answer := "yes"
	switch {
	case r.Allowed() && r.Answer.Source != "":
		answer = "yes, by " + r.Answer.Source
	case r.Answer.Decision == scenarios.Deny:
		answer = "DENIED"
	case !r.Allowed():
		answer = "NO"
	}
	if !r.Allowed() && r.Answer.Reason != "" {
		answer += ": " + strings.ReplaceAll(r.Answer.Reason, "\n", "; ")
	}
	if r.Answer.Err != "" {
		answer += " (error: " + r.Answer.Err + ")"
	}
	x.line("  %2d  may %s %s?", x.asked, r.Spec.User, what)
	x.line("      %s", answer)
	if !r.Allowed() {
		for _, near := range x.server.NearMisses(r.Spec) {
			x.line("      close, but: %s", near)
		}
	}
}

// result is the answer and what it was decided by.
func (x *explanation) result(p Prediction) {
	switch p.Outcome {
	case scenarios.Allowed:
		x.line("Result: allowed%s.", inMode(p))
	case scenarios.ImpersonationForbidden:
		x.line("Result: 403, impersonation is forbidden. No mode succeeded; the client sees the first denial:")
	case scenarios.RequestForbidden:
		if p.User == nil {
			x.line("Result: 403, the request is forbidden:")
			break
		}
		x.line("Result: 403. Impersonation is allowed%s, but the request is forbidden to %s:", inMode(p), p.User.Name)
	case scenarios.EscalationForbidden:
		x.line("Result: 403. The request is allowed, but grants more than %s holds:", subject(p).Name)
	case scenarios.BadRequest:
		x.line("Result: 400. A UID, groups or extra can be impersonated with a user name only:")
	default:
		x.line("Result: %d, before the request was authorized.", p.Code)
	}
	for i, m := range p.Messages {
		if i > 0 {
			x.line("  or, as the order of extra's keys is random:")
		}
		x.line("  %s", strings.ReplaceAll(m, "\n", "\n  "))
	}
	if u := p.User; u != nil {
		x.line("The request runs as %q in groups %q%s.", u.Name, u.Groups, details(*u))
		if p.Audit.Constraint != "" {
			x.line("The audit event says impersonationConstraint: %s.", p.Audit.Constraint)
		}
	}
}

func subject(p Prediction) scenarios.User {
	if p.User != nil {
		return *p.User
	}
	return p.Requestor
}

func inMode(p Prediction) string {
	if p.Mode == "" {
		return ""
	}
	return ", in mode " + string(p.Mode)
}

func details(u scenarios.User) string {
	text := ""
	if u.UID != "" {
		text += fmt.Sprintf(", UID %q", u.UID)
	}
	if len(u.Extra) > 0 {
		text += ", extra " + scenarios.RenderExtra(u.Extra)
	}
	return text
}

// missing says what to grant.
func (x *explanation) missing(p Prediction, imp *scenarios.Impersonate, r Request) {
	var needs []Need
	switch p.Outcome {
	case scenarios.ImpersonationForbidden:
		needs = x.server.Missing(p.Requestor, imp, r)
	case scenarios.RequestForbidden:
		needs = []Need{x.server.MissingFor(subject(p), r)}
	default:
		return
	}
	x.line("")
	x.line("What is missing%s:", map[bool]string{true: "; one of these is enough"}[len(needs) > 1])
	for _, n := range needs {
		head := "  for mode " + string(n.Mode)
		if n.Mode == "" {
			head = "  for the request itself"
		}
		if n.Refused != "" {
			x.line("%s: nothing helps: %s", head, n.Refused)
			continue
		}
		x.line("%s", head)
		for _, g := range n.Grants {
			x.line("    %s", rule(g))
		}
	}
}

// rule is a grant as a rule of RBAC, with who has to get it and where.
func rule(g scenarios.Grant) string {
	parts := []string{"verbs: " + quoted(g.Verbs)}
	for _, f := range []struct {
		name string
		list []string
	}{{"apiGroups", g.APIGroups}, {"resources", g.Resources}, {"resourceNames", g.Names}, {"nonResourceURLs", g.NonResourceURLs}} {
		if len(f.list) > 0 {
			parts = append(parts, f.name+": "+quoted(f.list))
		}
	}
	where := "cluster-wide"
	if g.Namespace != "" {
		where = "in namespace " + g.Namespace
	}
	return fmt.Sprintf("{%s}  to %s, %s", strings.Join(parts, ", "), g.Subject.User, where)
}

func quoted(list []string) string {
	return "[" + strings.Join(scenarios.Each(list, strconv.Quote), ", ") + "]"
}
