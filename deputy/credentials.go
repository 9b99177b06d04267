package deputy

import (
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// lines returns the header lines of the credentials. If they are to be shown, the person's name replaces secrets.
func (id *Identity) lines(hidesCredentials bool, nameCase func(string) string) string {
	var out []string
	for _, h := range id.headers {
		value := h.value
		if hidesCredentials && !id.public {
			value = "<" + id.Name + ">"
		}
		out = append(out, nameCase(h.name)+": "+value)
	}
	return strings.Join(out, "\r\n")
}

// rename returns a person whose name in the first header is spelled differently. In the spelling, {} stands for the
// name and {UPPER} for the name in upper case.
func (id *Identity) rename(spelling string) *Identity {
	if spelling == "" || len(id.headers) == 0 {
		return id
	}
	out := *id
	out.Name = strings.NewReplacer("{}", id.Name, "{UPPER}", strings.ToUpper(id.Name)).Replace(spelling)
	out.headers = slices.Clone(id.headers)
	out.headers[0].value = out.Name
	return &out
}

// isKnownByName reports whether the first header contains the person's name, so that another spelling is another
// person.
func (id *Identity) isKnownByName(spelling string) bool {
	return len(id.headers) > 0 && id.headers[0].value == id.Name && id.rename(spelling).Name != id.Name
}

// changeSecrets returns a person who has only the person's secrets, changed. A header that contains a name is not a
// secret.
func (id *Identity) changeSecrets(change func(string) string) *Identity {
	secrets := seq.Filter(id.headers, func(h header) bool { return !id.public && h.isSecret() })
	return &Identity{Name: id.Name, headers: seq.Map(secrets, func(h header) header {
		before, secret := h.splitSecret()
		return header{h.name, before + change(secret)}
	})}
}

// splitSecret splits the value of a header into the secret and what precedes it: the scheme of an Authorization, or the
// name of a cookie. Without these no proxy compares the secret.
func (h header) splitSecret() (before, secret string) {
	separator := " "
	if h.name == "Cookie" {
		separator = "="
	}
	before, secret, found := strings.Cut(h.value, separator)
	if !found {
		return "", h.value
	}
	return before + separator, secret
}

// isSecret reports whether the header contains a secret, and not a name.
func (h header) isSecret() bool { return h.name == "Authorization" || h.name == "Cookie" }

// cutInHalf returns a little more than the first half of a text.
func cutInHalf(s string) string { return s[:len(s)/2+1] }

// changeLetter changes a letter. It is not one of the last letters, because base64 does not use all bits of these.
func changeLetter(s string) string {
	if s == "" {
		return s
	}
	at, letter := max(0, len(s)-6), "A"
	if s[at] == 'A' {
		letter = "B"
	}
	return s[:at] + letter + s[at+1:]
}

// cutSignature returns a JWT without its signature, or half of a text that is not a JWT.
func cutSignature(s string) string {
	if at := strings.LastIndex(s, "."); at > 0 {
		return s[:at+1]
	}
	return cutInHalf(s)
}

// foldCase returns a secret in upper case, or half of one that is in upper case already.
func foldCase(s string) string {
	if upper := strings.ToUpper(s); upper != s {
		return upper
	}
	return cutInHalf(s)
}

// headerNames returns the names of the headers with the credentials.
func (id *Identity) headerNames() []string {
	return seq.Map(id.headers, func(h header) string { return h.name })
}

// trusted returns the names, in lower case, of the headers that a proxy believes. They contain a name, and no secret
// that could be somebody else's.
func (id *Identity) trusted() (out []string) {
	if id.public {
		return nil
	}
	for _, h := range id.headers {
		if !h.isSecret() {
			out = append(out, strings.ToLower(h.name))
		}
	}
	return out
}

// impersonate returns a request of the person as evidence shows it.
func (id *Identity) impersonate(r *scenarios.Request) *scenarios.Request {
	if !id.public {
		return r
	}
	out := *r
	out.Impersonate = &scenarios.Impersonate{User: id.Name, Groups: id.Groups}
	return &out
}

// addTo adds the credentials to the headers of a request.
func (id *Identity) addTo(headers http.Header) {
	for _, h := range id.headers {
		headers.Add(h.name, h.value)
	}
}

// mixCase changes the case of every second letter.
func mixCase(s string) string {
	out := []rune(strings.ToLower(s))
	for i := 1; i < len(out); i += 2 {
		out[i] = unicode.ToUpper(out[i])
	}
	return string(out)
}
