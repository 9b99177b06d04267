package deputy

import (
	"crypto/tls"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/authzconf/authzconf/reports/filing"
)

// Identity is a person who uses a proxy: the user who should arrive at the API server, and the credentials that the
// proxy knows.
type Identity struct {
	// Name is the user name at the API server. Groups are the groups that the proxy has to set; the controls show the
	// others.
	Name   string
	Groups []string

	headers []header
	cert    *tls.Certificate
	// public means that the credentials are not secret, so that evidence may show them.
	public bool
	// outOfReach means that the proxy may not impersonate the person.
	outOfReach bool
}

// impersonatedPerson returns a person who is known by impersonation headers. That is how an agent knows people.
func impersonatedPerson(name, group string) *Identity {
	return &Identity{
		Name:    name,
		Groups:  []string{group},
		headers: []header{{"Impersonate-User", name}, {"Impersonate-Group", group}},
		public:  true,
	}
}

// header is a header line of a person's credentials.
type header struct{ name, value string }

var identityForm = regexp.MustCompile(`^(.+?)(?:\[([^\]]*)\])?=(header|token|cookie|client-cert):(.*)$`)

// identityHelp says how an identity is written.
const identityHelp = "expected NAME=header:HEADER: VALUE, NAME=token:FILE, NAME=cookie:COOKIE=VALUE or NAME=client-cert:CERT,KEY, with groups NAME[GROUP,GROUP]=…"

// ParseIdentities returns the people in the values of --identity. Several values with the same name are credentials of
// one person. If read is true, the files that they name are read; otherwise, as when a report is verified, only the
// names count.
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

// add adds a credential of a kind: a header, a token, a cookie or a client certificate.
func (id *Identity) add(kind, value string, read bool) (err error) {
	switch kind {
	case "header":
		name, value, ok := strings.Cut(value, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("expected header:HEADER: VALUE, such as header:X-Forwarded-User: %s", id.Name)
		}
		return id.addHeader(name, strings.TrimSpace(value), read)
	case "cookie":
		name, _, isPair := strings.Cut(value, "=")
		isCookie := isPair && name != ""
		if !isCookie && !strings.HasPrefix(value, "@") {
			return fmt.Errorf("expected cookie:NAME=VALUE, or cookie:@FILE with that in it")
		}
		return id.addHeader("Cookie", value, read)
	case "token":
		if value == "" {
			return fmt.Errorf("expected token:FILE, a file with the bearer token")
		}
		if !read {
			value = ""
		} else if value, err = readValue(value); err != nil {
			return err
		}
		return id.addHeader("Authorization", "Bearer "+value, false)
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

// addHeader adds a header line. A value that begins with @ names a file that contains it.
func (id *Identity) addHeader(name, value string, read bool) (err error) {
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

// RedactIdentity returns a value of --identity without its secret, for the command line in a report.
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
