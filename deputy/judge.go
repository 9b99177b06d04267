package deputy

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/template"

	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

type judging struct {
	people map[string]*Identity
	// account is the proxy's own; on a cluster of somebody else's it is what the controls show.
	account   string
	reference bool
	seen      map[string]authenticationv1.UserInfo // who arrives with a person's credentials and no tricks
	groups    []string                             // those that anybody has to have
	// events are those of impersonated requests and of nobody's, by their audit IDs; known are those of all, and flows what
	// only answers of the API server have.
	events, known map[string]*auditv1.Event
	flows         map[string]bool
	ours          bool // the control plane, which logs everything and has RBAC alone
	names         bool // the proxy gives an audit ID to what it refuses itself
}

// judge holds every attack to who arrived. An error says that this is not evidence of the table.
func (e *attacksEvidence) judge(part *Part, table []attack, people []*Identity, account string, reference bool) error {
	if len(e.Attacks) != len(table) {
		return fmt.Errorf("there is evidence of %d attacks, not of %d", len(e.Attacks), len(table))
	}
	j := &judging{people: cast(people), account: account, reference: reference, seen: map[string]authenticationv1.UserInfo{}, events: map[string]*auditv1.Event{}, known: map[string]*auditv1.Event{}, flows: map[string]bool{}, ours: account != ""}
	for i := range e.Attacks {
		for _, ev := range e.Attacks[i].distinct() {
			j.known[string(ev.AuditID)] = ev
			if id := string(ev.AuditID); ev.ImpersonatedUser != nil || ev.User.Username == user.Anonymous && j.events[id] == nil {
				j.events[id] = ev
			}
		}
	}
	for n, one := range e.Attacks {
		for _, got := range one.Answers {
			j.flows[got.Flow] = j.flows[got.Flow] || got.Flow != "" && len(one.Events) > 0
			j.names = j.names || table[n].Who == nobody && got.AuditID != "" && len(one.Events) == 0
		}
	}
	for _, p := range people {
		j.groups = append(j.groups, p.Groups...)
	}
	s := scene{place: e.place, People: j.people}
	for n, a := range table {
		one := &e.Attacks[n]
		if want := s.sent(n, a); !slices.Equal(want, one.Sent) {
			return fmt.Errorf("%s: %q was sent, and it has to be %q", a.Name, one.Sent, want)
		}
		if part.began.After(one.Began) || one.Ended.After(part.ended) || one.Ended.Before(one.Began) {
			return fmt.Errorf("%s: it was not tried while its part of the suite ran", a.Name)
		}
		if one.NotTried != "" {
			part.Outcomes["not tried: "+one.NotTried]++
			continue
		}
		if !a.answered(one.Answers) {
			return fmt.Errorf("%s: %d answers to %d requests, or one that is neither an answer nor says why there is none", a.Name, len(one.Answers), len(a.Requests))
		}
		if err := j.attack(part, a, one, markerOf(e.Run, n, "")); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		if why := j.unlogged(one.Answers, len(one.Events) > 0); why != "" {
			part.Inconclusive = fmt.Sprintf("%s: %s", a.Name, why)
		}
	}
	for n, a := range table {
		if why := e.Attacks[n].NotTried; why != "" && !e.untried(table, n) {
			return fmt.Errorf("%s: it was not tried (%s), and others like it were", a.Name, why)
		}
	}
	return nil
}

func (j *judging) attack(part *Part, a attack, one *attackEvidence, marker string) error {
	part.Checks++
	events, code := one.distinct(), one.Answers[0].Code
	outcome, arrived, guessed := "refused by the proxy", map[int]bool{}, false
	wrong := map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(events)) { // what comes out is the same each time
		e := events[key]
		by, request := one.found(e, marker)
		if by == "" {
			return fmt.Errorf("the event %s is not that of this request", e.AuditID)
		}
		if why := verdicts.Contradicts(e); j.ours && why != "" {
			return errors.New(why)
		}
		i, err := strconv.Atoi(request)
		if err != nil || i < 1 || i > len(a.Requests) { // one within another, or one of several that look alike
			i = 1 + max(0, slices.IndexFunc(a.Requests, func(r rawAttack) bool { return j.people[r.Who].Name == arriving(e).Username }))
		}
		part.By[by]++
		guessed = guessed || by == byTime
		who, why := j.arrival(a, a.Requests[i-1].Who, e)
		if why != "" {
			if by == byTime {
				why += " (by the time: no marker arrived)"
			}
			wrong[why]++
			outcome = ""
		} else if outcome != "" && outcome != asPerson {
			outcome = who
		}
		arrived[i] = arrived[i] || who == asPerson
	}
	if why := j.fromElsewhere(a, one.Answers, arrived); why != "" && !guessed && len(wrong) == 0 {
		wrong[why]++
		outcome = ""
	}
	for _, why := range slices.Sorted(maps.Keys(wrong)) {
		if n := wrong[why]; n > 1 {
			why += fmt.Sprintf(", %d times", n)
		}
		part.find(a.Name, one, why)
	}
	if outcome == asPerson && a.shared() && !slices.ContainsFunc(one.Answers, reply.tells) {
		outcome = "not judged by their answers: nobody may read what is asked for, and what is refused is seldom kept"
	}
	must := a.Arrives == arrivesAlways || a.Arrives == arrivesReference && j.reference
	switch {
	case outcome == "":
		return nil
	case must && len(events) == 0 && code/100 == 2 && (part.logged || len(part.By) > 0): // the log shows others
		part.find(a.Name, one, fmt.Sprintf("it was answered %d, and the API server was not asked: it is the answer to another request", code))
	case must && len(events) == 0 && code/100 == 2:
		part.Inconclusive = fmt.Sprintf("%s: it was answered %d, and the audit log has no event of it: it is not the log of the API server behind this proxy, or its policy leaves out lists of pods", a.Name, code)
	case must && outcome == asPerson && len(arrived) < len(a.Requests):
		part.find(a.Name, one, fmt.Sprintf("only %d of %d requests arrived", len(arrived), len(a.Requests)))
	case must && outcome != asPerson:
		part.find(a.Name, one, fmt.Sprintf("it should have arrived as %s and did not: %s (code %d)", j.people[a.Requests[0].Who].Name, outcome, code))
	default:
		part.Outcomes[outcome]++
	}
	return nil
}

// fromElsewhere says which request was answered as somebody else's: it did not arrive, or the answer has another's audit ID.
// What a person was told may be told to that person again.
func (j *judging) fromElsewhere(a attack, answers []reply, arrived map[int]bool) string {
	known := map[string]bool{}
	for i := range arrived {
		known[a.Requests[i-1].Who] = true
	}
	for i, got := range answers {
		whose, ev := a.Requests[i].Who, j.events[got.AuditID]
		switch {
		case got.tells() && len(arrived) > 0 && !known[whose]:
			return fmt.Sprintf("request %d was answered with a %s, and did not arrive: it is the answer to somebody else", i+1, got.Kind)
		case ev != nil && (arriving(ev).Username != user.Anonymous || arrived[i+1]) && arriving(ev).Username != j.people[whose].spelt(a.Spelt).Name:
			return fmt.Sprintf("request %d was answered with what %q was told", i+1, arriving(ev).Username)
		}
	}
	return ""
}

// unlogged says which answer is one of the API server's of which there is no event, or another one: nobody knows who arrived.
func (j *judging) unlogged(answers []reply, logged bool) string {
	for _, got := range answers {
		list, e := got.Code/100 == 2 && got.Kind == "PodList", j.known[got.AuditID]
		switch theirs := list || j.ours && (j.flows[got.Flow] || got.AuditID != "" && !j.names); {
		case theirs && e == nil && (got.AuditID != "" || !logged):
			return fmt.Sprintf("the API server answered %d with the audit ID %q, and there is no event of it", got.Code, got.AuditID)
		case e != nil && e.ResponseStatus != nil && (list && e.ResponseStatus.Code >= http.StatusBadRequest || got.Kind == "Status" && got.Code >= http.StatusBadRequest && e.ResponseStatus.Code/100 == 2):
			return fmt.Sprintf("the API server answered %d with the audit ID %s, and by its event %d", got.Code, got.AuditID, e.ResponseStatus.Code)
		}
	}
	return ""
}

// answered says whether these can be the answers to an attack: each request has one, or why there is none. Where one request
// follows another without waiting, there may be none to those behind the first that fails.
func (a attack) answered(answers []reply) bool {
	streams := a.Protocol == protocol2
	none := func(r reply) bool { return r.Code == 0 && r.Problem == "" }
	if a.Pipelined || streams {
		return (streams || len(answers) == len(a.Requests)) && slices.ContainsFunc(answers, func(r reply) bool { return !none(r) })
	}
	for i, r := range a.Requests {
		if len(answers) != len(a.Requests) || none(answers[i]) && !r.HangUp {
			return false
		}
	}
	return true
}

// tells says whether an answer has what somebody may read: a list, or that there is nothing.
func (r reply) tells() bool {
	return r.Code/100 == 2 && strings.HasSuffix(r.Kind, "List") || r.Code == http.StatusNotFound && r.Kind == "Status"
}

// shared says whether several requests have one URL.
func (a attack) shared() bool {
	return slices.ContainsFunc(a.Requests, func(r rawAttack) bool { return strings.Contains(r.Target, "{same}") })
}

// distinct are the events without the further ones of a request, of its stages.
func (a *attackEvidence) distinct() map[string]*auditv1.Event {
	events := map[string]*auditv1.Event{}
	for _, raw := range a.Events {
		if e := decode(raw); e != nil {
			events[string(e.AuditID)+e.RequestURI+e.User.Username] = e
		}
	}
	return events
}

func (a attack) sends(text string) bool {
	return slices.ContainsFunc(a.Requests, func(r rawAttack) bool { return strings.Contains(strings.Join(r.Lines, "\n"), text) })
}

// arriving is who an event says that a request was made as.
func arriving(e *auditv1.Event) authenticationv1.UserInfo {
	if e.ImpersonatedUser != nil {
		return *e.ImpersonatedUser
	}
	return e.User
}

const (
	asPerson = "as the person"
	byTime   = "time"
)

// arrival is the outcome of an event, or what is wrong with it.
func (j *judging) arrival(a attack, whose string, e *auditv1.Event) (outcome, wrong string) {
	got, person := arriving(e), j.people[whose].spelt(a.Spelt)
	control := a.Arrives == arrivesAlways
	if control && j.account == "" && e.ImpersonatedUser != nil {
		j.account = e.User.Username
	}
	switch {
	case got.Username == "" && person.Name != "" && !slices.Contains(person.names(), "Authorization") && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusUnauthorized && a.sends("Authorization: "):
		return "", "its own Authorization reached the API server: with a token that is known there somebody else would have arrived"
	case got.Username == "" || got.Username == user.Anonymous:
		return "as nobody", ""
	case e.ImpersonatedUser == nil && decision(*e) == "" && e.ResponseStatus != nil && e.ResponseStatus.Code >= http.StatusBadRequest:
		return "refused by the API server", "" // the impersonation filter
	case e.ImpersonatedUser == nil && got.Username == j.account:
		return "", "it was made as the proxy itself, " + j.account
	case person.Name == "":
		return "", fmt.Sprintf("it has no identity, and was made as %q", got.Username)
	case got.Username != person.Name:
		return "", fmt.Sprintf("it was made as %q, not as %q", got.Username, person.Name)
	}
	seen, ok := j.seen[whose]
	if control && !ok {
		j.seen[whose] = got
		if masters := user.SystemPrivilegedGroup; slices.Contains(got.Groups, masters) && !slices.Contains(person.Groups, masters) {
			return "", fmt.Sprintf("it was made as %q with the group %q, which nobody said the person has", got.Username, masters)
		}
		for _, group := range person.Groups {
			if !slices.Contains(got.Groups, group) {
				return "", fmt.Sprintf("it was made as %q without the group %q", got.Username, group)
			}
		}
		for _, group := range got.Groups {
			if len(person.Groups) > 0 && !slices.Contains(person.Groups, group) && slices.Contains(j.groups, group) {
				return "", fmt.Sprintf("it was made as %q with the group %q, which is somebody else's", got.Username, group)
			}
		}
		return asPerson, ""
	}
	if why := unlike(got, seen); ok && a.Spelt == "" && why != "" {
		return "", fmt.Sprintf("it was made as %q %s", got.Username, why)
	}
	return asPerson, ""
}

// unlike is what a user has that the one of the control does not, or the other way round, but for what names the credential.
func unlike(got, seen authenticationv1.UserInfo) string {
	lacks := func(here, there []string) string {
		for _, s := range here {
			if !slices.Contains(there, s) && s != user.AllAuthenticated && s != user.CredentialIDKey && s != serviceaccount.PodNameKey {
				return s
			}
		}
		return ""
	}
	keys := func(u authenticationv1.UserInfo) []string { return slices.Sorted(maps.Keys(u.Extra)) }
	smuggled := slices.DeleteFunc(keys(got), func(key string) bool { return !slices.Contains(got.Extra[key], "smuggled") })
	for _, one := range []struct{ has, what string }{
		{"with the group", lacks(got.Groups, seen.Groups)}, {"without the group", lacks(seen.Groups, got.Groups)},
		{"with the extra key", cmp.Or(lacks(keys(got), keys(seen)), strings.Join(smuggled, ", "))}, {"without the extra key", lacks(keys(seen), keys(got))},
	} {
		if one.what != "" {
			return fmt.Sprintf("%s %q", one.has, one.what)
		}
	}
	if got.UID != seen.UID {
		return fmt.Sprintf("with the UID %q", got.UID)
	}
	return ""
}

// Finding is an attack that somebody else arrived by, or nobody who should have.
type Finding struct {
	Attack string `json:"attack"`
	// Sent has whose credentials they are in place of credentials.
	Sent    []string `json:"sent"`
	Answers []int    `json:"answers,omitempty"`
	Arrived string   `json:"arrived"`
}

func (p *Part) find(name string, e *attackEvidence, why string) {
	codes := seq.Map(e.Answers, func(r reply) int { return r.Code })
	p.Findings = append(p.Findings, Finding{Attack: name, Sent: e.Sent, Answers: codes, Arrived: why})
	p.fail("%s: %s", name, why)
}

var (
	//go:embed report.txt.tmpl
	plainText string

	plainPages = template.Must(template.New("plain").Funcs(reports.TextFuncs).Parse(plainText))
)

// said is a text of report.txt.tmpl.
func said(name string, data any) string {
	var b strings.Builder
	if err := plainPages.ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // it is compiled in
	}
	return b.String()
}
