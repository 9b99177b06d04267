package deputy

import (
	"cmp"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
)

//go:embed attacks.yaml
var attacksFile []byte

// attack is an entry of attacks.yaml, which says what its fields mean.
type attack struct {
	Name      string      `json:"name"`
	Requests  []rawAttack `json:"requests,omitempty"`
	Pipelined bool        `json:"pipelined,omitempty"`
	Protocol  string      `json:"protocol,omitempty"`
	Spelt     string      `json:"spelt,omitempty"`
	Arrives   string      `json:"arrives,omitempty"`
	Ways      []attack    `json:"ways,omitempty"`
	rawAttack `json:",inline"`

	// crowded says that others are under way at the same time: then answers may take as long as those of plain requests.
	crowded bool
}

// wait is how long an attack waits for a connection, and for each answer: what is malformed may get none.
func (a attack) wait() time.Duration {
	if a.crowded {
		return timeout
	}
	return 3 * time.Second
}

// rawAttack is one request of an attack, in the table and as it is written to a connection.
type rawAttack struct {
	Who      string   `json:"who,omitempty"`
	Method   string   `json:"method,omitempty"`
	Target   string   `json:"target,omitempty"`
	Lines    []string `json:"lines,omitempty"`
	Trailers []string `json:"trailers,omitempty"`
	Body     string   `json:"body,omitempty"`
	HangUp   bool     `json:"hangUp,omitempty"`
	// Cut leaves the header without its end.
	Cut      bool `json:"cut,omitempty"`
	SamePort bool `json:"samePort,omitempty"`
}

const (
	me, other, nobody = "me", "other", "nobody"

	arrivesAlways, arrivesReference = "always", "reference"
	// sameMark ends the marker of a URL that several requests share.
	sameMark  = "same"
	protocol2 = "HTTP/2"
)

// crowd are requests that everybody sends at once, on a connection each: plain ones, and ones that try to be the next.
func crowd(people []*Identity, requests int) (all []attack) {
	for i, p := range people {
		next := people[(i+1)%len(people)].Name
		plain := rawAttack{Who: p.Name, Method: "GET", Target: "{path}?{query}", Lines: []string{"{who}"}}
		tricky := plain
		tricky.Lines = []string{"{who}", "Impersonate-User: " + next, "Impersonate-Group: system:masters"}
		all = append(all, attack{Name: p.Name + " among all", Requests: slices.Repeat([]rawAttack{plain}, requests), Arrives: arrivesAlways, crowded: true},
			attack{Name: p.Name + " among all, as " + next, Requests: slices.Repeat([]rawAttack{tricky}, requests), crowded: true})
	}
	return all
}

// attacks are the table. The first two are the controls of the two people.
var attacks = sync.OnceValue(func() (all []attack) {
	for _, a := range fixtures.Table[[]attack]("attacks.yaml", attacksFile) {
		for _, way := range a.Ways {
			way.Name, way.Who, way.Lines = way.Name+": "+a.Name, a.Who, slices.Concat(a.Lines, way.Lines)
			all = append(all, way)
		}
		if a.Ways == nil {
			all = append(all, a)
		}
	}
	for i := range all {
		a := &all[i]
		if a.Requests == nil {
			a.Requests = []rawAttack{a.rawAttack}
		}
		for n := range a.Requests {
			r := &a.Requests[n]
			r.Who, r.Method, r.Target = cmp.Or(r.Who, me), cmp.Or(r.Method, "GET"), cmp.Or(r.Target, "{path}?{query}")
		}
	}
	return all
})

// long is what a body is that is sent on before it is there.
var long = strings.Repeat("x", 100_000)

// smuggledMark ends the marker of a request within a request.
const smuggledMark = "s"

func markerOf(run string, attack int, request any) string {
	return fmt.Sprintf("%s-%06d-%v", run, attack, request)
}

type place struct {
	// Run begins every marker.
	Run       string `json:"run"`
	Host      string `json:"host"`
	Prefix    string `json:"prefix,omitempty"`
	Namespace string `json:"namespace"`
}

// scene is a place, and whose credentials stand in attacks. Shown writes whose they are in their place, for evidence.
type scene struct {
	place
	People map[string]*Identity
	Shown  bool
}

func podsIn(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

// requests are those of the attack with a number, as they are written.
func (s scene) requests(n int, a attack) (out []rawAttack) {
	for i, r := range a.Requests {
		out = append(out, s.write(a, r, markerOf(s.Run, n, i+1), markerOf(s.Run, n, smuggledMark)))
	}
	return out
}

// sent is the attack as evidence shows it.
func (s scene) sent(n int, a attack) []string {
	s.Shown = true
	return seq.Map(s.requests(n, a), func(r rawAttack) string { return reports.Redact(strings.Replace(r.text(), long, "x…", 1)) })
}

func (s scene) write(a attack, r rawAttack, marker, smuggled string) rawAttack {
	pods, names, mine := podsIn(s.Namespace), strings.Clone, s.People[me].spelt(a.Spelt)
	if a.Protocol == protocol2 { // its names are in lower case, but for what the table itself writes
		names = strings.ToLower
	}
	believed := http.CanonicalHeaderKey(slices.Concat(s.People[other].trusted(), []string{"x-forwarded-user"})[0])
	fill := strings.NewReplacer(
		"{query}", "fieldSelector=metadata.name%3D"+marker, "{same}", "fieldSelector=metadata.name%3D"+strings.TrimRight(marker, "0123456789")+sameMark, "{path/}", strings.TrimPrefix(pods, "/"), "{path}", s.Prefix+pods, "{prefix}", s.Prefix,
		"{host}", s.Host, "{marker}", marker, "{smuggled}", smuggled,
		"{me.name}", s.name(me), "{other.name}", s.name(other), "{other.basic}", base64.StdEncoding.EncodeToString([]byte(s.name(other)+":x")), "{other.jwt}", forged(s.name(other)), "{other.protocol}", base64.RawURLEncoding.EncodeToString([]byte(forged(s.name(other)))), "{me:names}", strings.Join(s.People[me].names(), ", "),
		"{me}", mine.lines(s.Shown, names), "{ME}", s.People[me].lines(s.Shown, mixedCase), "{other}", s.People[other].lines(s.Shown, names),
		"{me:half}", s.People[me].secrets(half).lines(s.Shown, names), "{me:folded}", s.People[me].secrets(folded).lines(s.Shown, names), "{me:nearly}", s.People[me].secrets(nearly).lines(s.Shown, names), "{me:unsigned}", s.People[me].secrets(unsigned).lines(s.Shown, names),
		"{other.header}", believed, "{other.header_}", strings.ReplaceAll(believed, "-", "_"), "{long}", long,
		"{who}", s.People[r.Who].lines(s.Shown, names))
	w := r
	known := append(s.People[me].trusted(), s.People[other].trusted()...)
	without := func(lines []string, names []string) []string {
		return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
			name, _, _ := strings.Cut(line, ":")
			return slices.Contains(names, strings.ToLower(name))
		})
	}
	lines := without(strings.Split(strings.Join(r.Lines, "\r\n"), "\r\n"), known) // who may send it is whom it names
	if s.People[other].public {                                                   // then a request within a request that names somebody is that person's
		known = append(known, "impersonate-user")
	}
	body := strings.Join(without(strings.Split(r.Body, "\r\n"), known), "\r\n")
	w.Target, w.Body, w.Lines, w.Trailers = fill.Replace(r.Target), fill.Replace(body), nil, seq.Map(r.Trailers, fill.Replace)
	head := []string{names("Host") + ": " + s.Host, names("Audit-Id") + ": " + marker}
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "User-Agent:") }) {
		head = append(head, names("User-Agent")+": "+marker)
	}
	for _, line := range append(head, lines...) {
		if line = strings.ReplaceAll(fill.Replace(line), "{length}", strconv.Itoa(len(w.Body))); line != "" { // whose certificate is the credential sends no line
			w.Lines = append(w.Lines, line)
		}
	}
	return w
}

// forged is a token that nobody signed, for whoever reads tokens without verifying them.
func forged(name string) string {
	part := base64.RawURLEncoding.EncodeToString
	claims := fmt.Sprintf(`{"sub":%[1]q,"email":%[1]q,"preferred_username":%[1]q,"groups":["system:masters"],"exp":4102444800}`, name)
	return part([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + part([]byte(claims)) + ".AAAA"
}

func (s scene) name(who string) string { return s.People[who].Name }

// text is the request over HTTP/1.1, and what evidence and findings show of one over HTTP/2.
func (w rawAttack) text() string {
	text := w.Method + " " + w.Target + " HTTP/1.1\r\n" + strings.Join(w.Lines, "\r\n")
	if w.Cut {
		return text
	}
	text += "\r\n\r\n" + w.Body
	if len(w.Trailers) > 0 {
		text += strings.Join(w.Trailers, "\r\n") + "\r\n"
	}
	return text
}
