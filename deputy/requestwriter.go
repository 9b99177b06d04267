package deputy

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports/record"
)

const (
	// sameMark is the end of the marker of a URL that several requests share.
	sameMark = "same"
	// smuggledMark is the end of the marker of a request within a request.
	smuggledMark = "s"
)

// longBody is a body so long that a proxy begins to pass it on before it has arrived completely.
var longBody = strings.Repeat("x", 100_000)

// manyLines are thousands of header lines, by the placeholders that stand for them. An API server written in Go accepts
// 16,384 values.
var manyLines = map[string]string{
	"{many:groups}":  numberLines("Impersonate-Group: group-%d", 2500),
	"{many:extra}":   numberLines("Impersonate-Extra-Corp.example%%2fteam: team-%d", 2500),
	"{many:padding}": numberLines("X-Padding: %d", 16_384),
}

// numberLines returns header lines that differ by a number.
func numberLines(format string, n int) string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(lines, "\r\n")
}

// destination says where requests are sent.
type destination struct {
	// Run is the beginning of every marker.
	Run       string `json:"run"`
	Host      string `json:"host"`
	Prefix    string `json:"prefix,omitempty"`
	Namespace string `json:"namespace"`
	// Clusters are the names of two clusters behind one proxy, and OtherPrefix is the beginning of the second one's
	// paths. Both are empty if there is one cluster.
	Clusters    []string `json:"clusters,omitempty"`
	OtherPrefix string   `json:"otherPrefix,omitempty"`
}

// secondClusterName returns the name of the second cluster, or "" if there is one cluster.
func (p destination) secondClusterName() string {
	if len(p.Clusters) < 2 {
		return ""
	}
	return p.Clusters[1]
}

// requestWriter writes the requests of attacks to a destination, with the credentials of people.
type requestWriter struct {
	destination
	People map[string]*Identity
	// HidesCredentials replaces credentials by the names of their owners, for evidence.
	HidesCredentials bool
}

// markerOf returns the marker of a request, by which its audit event is found.
func markerOf(run string, attack int, request any) string {
	return fmt.Sprintf("%s-%06d-%v", run, attack, request)
}

// podsIn returns the path of the pods of a namespace.
func podsIn(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

// writeRequests returns the requests of the n-th attack as they are written.
func (s requestWriter) writeRequests(n int, a attack) (out []rawRequest) {
	for i, r := range a.Requests {
		out = append(out, s.writeRequest(a, r, markerOf(s.Run, n, i+1), markerOf(s.Run, n, smuggledMark)))
	}
	return out
}

// describeAttack returns an attack as evidence shows it.
func (s requestWriter) describeAttack(n int, a attack) []string {
	s.HidesCredentials = true
	return seq.Map(s.writeRequests(n, a), func(r rawRequest) string { return record.Redact(shorten(r.wireText())) })
}

// shorten returns a request in which long parts are cut.
func shorten(text string) string {
	text = strings.Replace(text, longBody, "x…", 1)
	for _, lines := range manyLines {
		first, _, _ := strings.Cut(lines, "\r\n")
		text = strings.Replace(text, lines, fmt.Sprintf("%s and so on, %d lines", first, 1+strings.Count(lines, "\r\n")), 1)
	}
	return text
}

// writeRequest fills in the placeholders of a request in the table.
func (s requestWriter) writeRequest(a attack, r rawRequest, marker, smuggled string) rawRequest {
	nameCase := strings.Clone
	if a.Protocol == protocol2 { // header names are in lower case there, except for those that the table itself writes
		nameCase = strings.ToLower
	}
	fill := s.placeholders(a, r, marker, smuggled, nameCase)
	// If a proxy believes a header, whoever sends it is whom it names, so such headers are not sent as an attack. The
	// same holds for a request within a request that names somebody, if people are known by impersonation headers.
	trusted := append(s.People[senderMe].trusted(), s.People[senderOther].trusted()...)
	lines := withoutHeaders(strings.Split(strings.Join(r.Lines, "\r\n"), "\r\n"), trusted)
	if s.People[senderOther].public {
		trusted = append(trusted, "impersonate-user")
	}
	body := strings.Join(withoutHeaders(strings.Split(r.Body, "\r\n"), trusted), "\r\n")
	w := r
	w.Target, w.Body, w.Lines, w.Trailers = fill.Replace(r.Target), fill.Replace(body), nil, seq.Map(r.Trailers, fill.Replace)
	head := []string{nameCase("Host") + ": " + s.Host, nameCase("Audit-Id") + ": " + marker}
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "User-Agent:") }) {
		head = append(head, nameCase("User-Agent")+": "+marker)
	}
	for _, line := range append(head, lines...) {
		line = strings.ReplaceAll(fill.Replace(line), "{length}", strconv.Itoa(len(w.Body)))
		if line != "" { // a person whose credential is a certificate sends no line
			w.Lines = append(w.Lines, line)
		}
	}
	return w
}

// withoutHeaders returns the lines without those of the given headers, whose names are in lower case.
func withoutHeaders(lines []string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		name, _, _ := strings.Cut(line, ":")
		return slices.Contains(names, strings.ToLower(name))
	})
}

// placeholders returns a replacer for the placeholders of the table in a request.
func (s requestWriter) placeholders(a attack, r rawRequest, marker, smuggled string, nameCase func(string) string) *strings.Replacer {
	const selector = "fieldSelector=metadata.name%3D"
	pods, me, others := podsIn(s.Namespace), s.People[senderMe], s.People[senderOther]
	credentials := func(person *Identity, nameCase func(string) string) string {
		return person.lines(s.HidesCredentials, nameCase)
	}
	trusted := http.CanonicalHeaderKey(slices.Concat(others.trusted(), []string{"x-forwarded-user"})[0])
	unsignedToken := forgeToken(others.Name)
	up := strings.Repeat("/..", strings.Count(s.Prefix, "/"))
	return strings.NewReplacer(
		"{many:groups}",
		manyLines["{many:groups}"],
		"{many:extra}",
		manyLines["{many:extra}"],
		"{many:padding}",
		manyLines["{many:padding}"],
		"{query}",
		selector+marker,
		"{same}",
		selector+strings.TrimRight(marker, "0123456789")+sameMark,
		"{path/}",
		strings.TrimPrefix(pods, "/"),
		"{path}",
		s.Prefix+pods,
		"{prefix}",
		s.Prefix,
		"{there.name}",
		s.secondClusterName(),
		"{there.prefix}",
		s.OtherPrefix,
		"{there}",
		s.OtherPrefix+pods,
		"{THERE}",
		strings.ToUpper(s.OtherPrefix)+pods,
		"{nowhere}",
		s.OtherPrefix+"-that-is-not-there"+pods,
		"{up}",
		up,
		"{up%}",
		strings.ReplaceAll(up, ".", "%2e"),
		"{host}",
		s.Host,
		"{marker}",
		marker,
		"{smuggled}",
		smuggled,
		"{me.name}",
		me.Name,
		"{other.name}",
		others.Name,
		"{other.basic}",
		base64.StdEncoding.EncodeToString([]byte(others.Name+":x")),
		"{other.jwt}",
		unsignedToken,
		"{other.protocol}",
		base64.RawURLEncoding.EncodeToString([]byte(unsignedToken)),
		"{me:names}",
		strings.Join(me.headerNames(), ", "),
		"{me}",
		credentials(me.rename(a.NameSpelling), nameCase),
		"{ME}",
		credentials(me, mixCase),
		"{other}",
		credentials(others, nameCase),
		"{me:half}",
		credentials(me.changeSecrets(cutInHalf), nameCase),
		"{me:folded}",
		credentials(me.changeSecrets(foldCase), nameCase),
		"{me:nearly}",
		credentials(me.changeSecrets(changeLetter), nameCase),
		"{me:unsigned}",
		credentials(me.changeSecrets(cutSignature), nameCase),
		"{other.header}",
		trusted,
		"{other.header_}",
		strings.ReplaceAll(trusted, "-", "_"),
		"{long}",
		longBody,
		"{who}",
		credentials(s.People[r.Who], nameCase))
}

// forgeToken returns a token that nobody signed. It deceives a proxy that reads tokens without verifying them.
func forgeToken(name string) string {
	part := base64.RawURLEncoding.EncodeToString
	claims := fmt.Sprintf(`{"sub":%[1]q,"email":%[1]q,"preferred_username":%[1]q,"groups":["system:masters"],"exp":4102444800}`, name)
	return part([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + part([]byte(claims)) + ".AAAA"
}
