package deputy

import (
	"net/url"
	"regexp"
	"strings"
)

// brokenRequest is a request as a lenient reader understands it. Any line break ends a line, and nothing is refused.
type brokenRequest struct {
	method, target string
	fields         []header
	// rest is what follows the header.
	rest string
	// marker is the marker of the request, attack is the number of the attack, and smuggled is the marker of a request
	// within it.
	marker, smuggled string
	attack           int
	// malformed means that a strict reader refuses the request.
	malformed bool
	http2     bool
	// port is the client's port, and conn is what is remembered of its connection.
	port string
	conn *brokenConn
}

// brokenConn is what is remembered of a connection.
type brokenConn struct{ person string }

var markerForm = regexp.MustCompile(`(az[0-9a-f]{10})-(\d{6})-\d+`)

// readBroken reads the header of a request, with its first line, and what follows the header.
func readBroken(head, rest string) *brokenRequest {
	r := &brokenRequest{rest: rest}
	strict := strings.ReplaceAll(head, "\r\n", "")
	r.malformed = strings.ContainsAny(strict, "\r\n\x00")
	lines := strings.FieldsFunc(head, func(c rune) bool { return c == '\r' || c == '\n' })
	if len(lines) == 0 {
		return r
	}
	words := strings.Split(lines[0], " ")
	r.method = words[0]
	if len(words) > 1 {
		r.target = words[1]
	}
	for _, line := range lines[1:] {
		r.addLine(line)
	}
	return r
}

// addLine adds a header line, and the lines that are encoded in it.
func (r *brokenRequest) addLine(line string) {
	name, value, _ := strings.Cut(line, ":")
	name, value = unescape(name), strings.Trim(value, " \t\x00")
	r.fields = append(r.fields, header{name, value})
	decoded := unescape(unescape(line))
	if _, inner, isSplit := strings.Cut(decoded, "\r\n"); isSplit {
		innerName, innerValue, _ := strings.Cut(inner, ":")
		r.fields = append(r.fields, header{innerName, strings.TrimSpace(innerValue)})
	}
	if m := markerForm.FindStringSubmatch(line); m != nil && strings.EqualFold(name, "Audit-Id") && r.marker == "" {
		r.marker, r.smuggled = m[0], m[1]+"-"+m[2]+"-"+smuggledMark
		for _, digit := range m[2] {
			r.attack = 10*r.attack + int(digit-'0')
		}
	}
}

func unescape(s string) string {
	if out, err := url.PathUnescape(s); err == nil {
		return out
	}
	return s
}

// letters returns only the letters of a header's name. A proxy that compares these takes many names for the same.
func letters(name string) string {
	return strings.Map(func(c rune) rune {
		if c < 'a' || c > 'z' {
			return -1
		}
		return c
	}, strings.ToLower(name))
}

// session returns the person of the session as a correct reader finds it, or "" if there is none.
func (r *brokenRequest) session() (name string) {
	for _, f := range r.fields {
		if strings.EqualFold(f.name, sessionHeader) {
			name = f.value
		}
	}
	return name
}

// get returns the value of a header.
func (r *brokenRequest) get(name string) string {
	for _, f := range r.fields {
		if strings.EqualFold(f.name, name) {
			return f.value
		}
	}
	return ""
}

// isPlain reports whether a request has nothing that a control does not have.
func (r *brokenRequest) isPlain() bool {
	for _, f := range r.fields {
		switch strings.ToLower(f.name) {
		case "host", "audit-id", strings.ToLower(sessionHeader), "cookie":
		case "user-agent":
			if !strings.Contains(f.value, r.marker) {
				return false
			}
		default:
			return false
		}
	}
	hasPlainQuery := strings.HasSuffix(r.target, r.marker) || strings.HasSuffix(r.target, sameMark)
	return r.method == "GET" && strings.HasPrefix(r.target, podsIn(Namespace)+"?fieldSelector=") && r.rest == "" && hasPlainQuery
}
