package deputy

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/scenarios"
)

// Identity is a person who uses a proxy: who should arrive at the API server, and the credentials that the proxy knows.
type Identity struct {
	// Name is the user name at the API server, Groups those that the proxy has to give; the rest is what the control shows.
	Name   string
	Groups []string

	headers []header
	cert    *tls.Certificate
	public  bool // the credentials are none, and evidence shows them
	// outOfReach says that the proxy may not impersonate the person.
	outOfReach bool
}

// asserted is a person who is whoever the headers say that impersonate: so an agent knows people.
func asserted(name, group string) *Identity {
	return &Identity{Name: name, Groups: []string{group}, headers: []header{{"Impersonate-User", name}, {"Impersonate-Group", group}}, public: true}
}

type header struct{ name, value string }

var identityForm = regexp.MustCompile(`^(.+?)(?:\[([^\]]*)\])?=(header|token|cookie|client-cert):(.*)$`)

// identityHelp says how an identity is written.
const identityHelp = "expected NAME=header:HEADER: VALUE, NAME=token:FILE, NAME=cookie:COOKIE=VALUE or NAME=client-cert:CERT,KEY, with groups NAME[GROUP,GROUP]=…"

// ParseIdentities reads the values of --identity. Several of one name are credentials of one person. With read they are
// read from the files that they name; without, as from a report, only whose they are counts.
func ParseIdentities(values []string, read bool) (all []*Identity, err error) {
	for _, text := range values {
		m := identityForm.FindStringSubmatch(text)
		if m == nil {
			name, _, _ := strings.Cut(text, "=")
			return nil, fmt.Errorf("--identity %s…: %s", name, identityHelp)
		}
		i := slices.IndexFunc(all, func(id *Identity) bool { return id.Name == m[1] })
		if i < 0 {
			i, all = len(all), append(all, &Identity{Name: m[1]})
		}
		if m[2] != "" {
			all[i].Groups = append(all[i].Groups, strings.Split(m[2], ",")...)
		}
		if err := all[i].add(m[3], m[4], read); err != nil {
			return nil, fmt.Errorf("--identity %s=%s: %w", m[1], m[3], err)
		}
	}
	return all, nil
}

func (id *Identity) add(kind, value string, read bool) (err error) {
	switch kind {
	case "header":
		name, value, ok := strings.Cut(value, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("expected header:HEADER: VALUE, such as header:X-Forwarded-User: %s", id.Name)
		}
		return id.header(name, strings.TrimSpace(value), read)
	case "cookie":
		if name, _, ok := strings.Cut(value, "="); !strings.HasPrefix(value, "@") && (!ok || name == "") {
			return fmt.Errorf("expected cookie:NAME=VALUE, or cookie:@FILE with that in it")
		}
		return id.header("Cookie", value, read)
	case "token":
		if value == "" {
			return fmt.Errorf("expected token:FILE, a file with the bearer token")
		}
		if !read {
			value = ""
		} else if value, err = readValue(value); err != nil {
			return err
		}
		return id.header("Authorization", "Bearer "+value, false)
	}
	cert, key, ok := strings.Cut(value, ",")
	if !ok {
		return fmt.Errorf("expected client-cert:CERT,KEY, two files in PEM")
	}
	id.cert = &tls.Certificate{}
	if read {
		*id.cert, err = tls.LoadX509KeyPair(cert, key)
	}
	return err
}

// header adds a header line; a value that begins with @ is in a file.
func (id *Identity) header(name, value string, read bool) (err error) {
	if file, ok := strings.CutPrefix(value, "@"); ok && read {
		if value, err = readValue(file); err != nil {
			return err
		}
	}
	if !httpguts.ValidHeaderFieldValue(value) {
		return fmt.Errorf("the value of %s is not one that a header may have", name)
	}
	id.headers = append(id.headers, header{name, value})
	return nil
}

func readValue(file string) (string, error) {
	data, err := filing.Input(file)
	value := strings.TrimSpace(string(data))
	if err == nil && value == "" {
		err = fmt.Errorf("%s is empty", file)
	}
	return value, err
}

// RedactIdentity is a value of --identity without the secret in it, as a report's command line has it.
func RedactIdentity(value string) string {
	m := identityForm.FindStringSubmatchIndex(value)
	if m == nil {
		return value
	}
	kind, secret := value[m[6]:m[7]], value[m[8]:m[9]]
	switch name, rest, _ := strings.Cut(secret, map[string]string{"header": ":", "cookie": "="}[kind]); {
	case kind == "header" && !strings.HasPrefix(strings.TrimSpace(rest), "@"):
		return value[:m[8]] + name + ": [redacted]"
	case kind == "cookie" && !strings.HasPrefix(secret, "@"):
		return value[:m[8]] + name + "=[redacted]"
	}
	return value
}

func (id *Identity) lines(shown bool, names func(string) string) string {
	var out []string
	for _, h := range id.headers {
		value := h.value
		if shown && !id.public {
			value = "<" + id.Name + ">"
		}
		out = append(out, names(h.name)+": "+value)
	}
	return strings.Join(out, "\r\n")
}

// spelt is somebody whose name, in the first header, is spelt otherwise.
func (id *Identity) spelt(how string) *Identity {
	if how == "" || len(id.headers) == 0 {
		return id
	}
	out := *id
	out.Name = strings.NewReplacer("{}", id.Name, "{UPPER}", strings.ToUpper(id.Name)).Replace(how)
	out.headers = slices.Clone(id.headers)
	out.headers[0].value = out.Name
	return &out
}

// secrets is somebody who has made something else of the secrets. Whom a header names is none.
func (id *Identity) secrets(change func(string) string) *Identity {
	secret := seq.Filter(id.headers, func(h header) bool { return !id.public && (h.name == "Authorization" || h.name == "Cookie") })
	return &Identity{Name: id.Name, headers: seq.Map(secret, func(h header) header { return header{h.name, change(h.value)} })}
}

func half(s string) string { return s[:len(s)/2+1] }

// nearly changes a letter that is not among the last, of which base64 does not need every bit.
func nearly(s string) string {
	at := max(0, len(s)-6)
	if s == "" {
		return s
	}
	return s[:at] + map[bool]string{true: "B", false: "A"}[s[at:at+1] == "A"] + s[at+1:]
}

// unsigned is a JWT without its signature, and half of what is none.
func unsigned(s string) string {
	if at := strings.LastIndex(s, "."); at > 0 {
		return s[:at+1]
	}
	return half(s)
}

// folded is in upper case, and half of what is that already.
func folded(s string) string {
	if upper := strings.ToUpper(s); upper != s {
		return upper
	}
	return half(s)
}

func (id *Identity) names() []string {
	return seq.Map(id.headers, func(h header) string { return h.name })
}

// trusted are the headers, in lower case, that a proxy believes: they hold a name and no secret that could be foreign.
func (id *Identity) trusted() (out []string) {
	for _, h := range id.headers {
		if h.name != "Authorization" && h.name != "Cookie" && !id.public {
			out = append(out, strings.ToLower(h.name))
		}
	}
	return out
}

// as is a request as evidence shows it of the person.
func (id *Identity) as(r *scenarios.Request) *scenarios.Request {
	if !id.public {
		return r
	}
	out := *r
	out.Impersonate = &scenarios.Impersonate{User: id.Name, Groups: id.Groups}
	return &out
}

func (id *Identity) set(to http.Header) {
	for _, h := range id.headers {
		to.Add(h.name, h.value)
	}
}

// mixedCase has every second letter in the other case.
func mixedCase(s string) string {
	out := []rune(strings.ToLower(s))
	for i := 1; i < len(out); i += 2 {
		out[i] = unicode.ToUpper(out[i])
	}
	return string(out)
}
