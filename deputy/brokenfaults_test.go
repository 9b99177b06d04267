package deputy

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
)

// brokenArrival says as whom a broken proxy makes a request.
type brokenArrival struct {
	// itself means that nobody is impersonated.
	itself bool
	user   string
	groups []string
	uid    string
	extra  []string
	// authorization is sent instead of the proxy's own.
	authorization string
	// smuggled means that the request is one within another request.
	smuggled bool
	// reviews is how many access reviews the proxy asks for before the request.
	reviews int
	// answered means that the request is answered without being made.
	answered bool
}

// brokenFault is one way in which a proxy is wrong. It returns as whom a request is made. It returns false for a
// request that it does not make wrongly.
type brokenFault struct {
	name  string
	wrong func(p *brokenProxy, r *brokenRequest) (brokenArrival, bool)
}

var knownPeople = []string{"alice@corp", "bob@corp"}

var (
	letsNobodyIn = brokenFault{"lets in who has no session", func(_ *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
		return brokenArrival{itself: true}, r.session() == ""
	}}
	obeysImpersonation = brokenFault{"takes impersonation from the client, however it is written", obeyImpersonation}
	believesNames      = brokenFault{"believes any header, query or body with a name in it", believeNames}
	dropsConnection    = brokenFault{"drops what Connection and its like name", dropConnection}
	passesTokens       = brokenFault{"passes the client's tokens on", passTokens}
	foldsNames         = brokenFault{"takes a name that contains a person's for the person", foldNames}
	guessesSecrets     = brokenFault{"compares secrets nearly", guessSecrets}
	trustsPlaces       = brokenFault{"trusts who says to be inside", func(_ *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
		return brokenArrival{itself: true}, r.session() == "" && !r.isPlain()
	}}
	knowsPlainAlone = brokenFault{"impersonates for plain requests alone", func(_ *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
		return brokenArrival{itself: true}, !r.isPlain()
	}}
	knowsHTTP1Alone = brokenFault{"impersonates over HTTP/1.1 alone", func(_ *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
		return brokenArrival{itself: true}, r.http2
	}}
	readsTwice = brokenFault{"takes what follows for the next request", func(_ *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
		return brokenArrival{itself: true, smuggled: true}, strings.Contains(r.rest, "GET ")
	}}
	asksForEach = brokenFault{"asks for an access review for each value", func(_ *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
		n := 0
		for _, f := range r.fields {
			if strings.HasPrefix(letters(f.name), "impersonate") {
				n++
			}
		}
		return brokenArrival{user: r.session(), reviews: min(n, 2*reviewLimit)}, n > reviewLimit
	}}
	givesUp = brokenFault{"gives up behind 16,384 values", func(_ *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
		return brokenArrival{itself: true}, len(r.fields) > 16_384
	}}
	remembersConnections = brokenFault{"remembers whose connection it is", func(_ *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
		return brokenArrival{user: r.conn.person}, r.conn.person != "" && r.conn.person != r.session()
	}}
	remembersPorts = brokenFault{"remembers whose port it is", func(p *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
		who := p.ports[r.port]
		return brokenArrival{user: who}, who != "" && who != r.session()
	}}
	remembersPrograms = brokenFault{"remembers whose program it is", func(p *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
		who := p.programs[r.get("User-Agent")]
		return brokenArrival{user: who}, who != "" && r.session() == ""
	}}
	keepsLeftovers = brokenFault{"keeps what a connection left that ended", func(p *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
		who := p.leftovers[r.attack]
		return brokenArrival{user: who}, who != "" && who != r.session()
	}}
	keepsAnswers = brokenFault{"keeps answers by their URL", func(p *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
		_, isKept := p.answers[r.target]
		return brokenArrival{answered: true}, isKept && strings.Contains(r.target, sameMark)
	}}
)

// faultsOfKinds are the faults at which each kind of attack is aimed. The first fault that makes a request wrongly is
// used.
var faultsOfKinds = map[string][]brokenFault{
	controlsKind:          {knowsHTTP1Alone},
	"nobody":              {letsNobodyIn},
	"impersonation":       {obeysImpersonation},
	"header-names":        {obeysImpersonation},
	"similar-names":       {obeysImpersonation, foldsNames},
	"many-values":         {asksForEach, givesUp, obeysImpersonation},
	"connection":          {dropsConnection},
	"foreign-credentials": {believesNames, passesTokens},
	"similar-secrets":     {guessesSecrets},
	"trusted-header":      {believesNames},
	"trusted-places":      {trustsPlaces},
	"paths":               {believesNames, passesTokens, trustsPlaces, knowsPlainAlone},
	"smuggling":           {readsTwice, obeysImpersonation},
	"upgrades":            {obeysImpersonation, dropsConnection},
	"requests":            {obeysImpersonation, believesNames, dropsConnection, passesTokens, trustsPlaces, knowsPlainAlone},
	"two-people":          {keepsAnswers, readsTwice, remembersConnections, remembersPrograms, remembersPorts, keepsLeftovers},
}

func obeyImpersonation(_ *brokenProxy, r *brokenRequest) (as brokenArrival, isWrong bool) {
	as.user = r.session()
	for _, f := range append(slices.Clone(r.fields), r.trailers()...) {
		name := letters(f.name)
		switch {
		case strings.Contains(name, "impersonateuser") && f.value == "":
			as.itself, isWrong = true, true
		case strings.Contains(name, "impersonateuser"):
			as.user, isWrong = f.value, true
		case strings.Contains(name, "impersonategroup"):
			as.groups, isWrong = append(as.groups, strings.Split(f.value, ", ")...), true
		case strings.Contains(name, "impersonateuid"):
			as.uid, isWrong = f.value, true
		case strings.Contains(name, "impersonateextra"):
			as.extra, isWrong = append(as.extra, f.value[:min(len(f.value), 20)]), true
		}
	}
	as.itself = as.itself || as.user == ""
	return as, isWrong
}

// trailers returns the lines after the header that look like header lines.
func (r *brokenRequest) trailers() (fields []header) {
	for _, line := range strings.Split(r.rest, "\r\n") {
		if name, value, isField := strings.Cut(line, ":"); isField && !strings.Contains(name, "{") {
			fields = append(fields, header{name, strings.TrimSpace(value)})
		}
	}
	return fields
}

func believeNames(_ *brokenProxy, r *brokenRequest) (as brokenArrival, isWrong bool) {
	as.user = r.session()
	places := []string{unescape(r.target), r.rest}
	for _, f := range r.fields {
		if !strings.EqualFold(f.name, sessionHeader) {
			places = append(places, decodeCredentials(f.value))
		}
	}
	for _, place := range places {
		for _, who := range knownPeople {
			if who != r.session() && strings.Contains(place, who) {
				return brokenArrival{user: who}, true
			}
		}
		if strings.Contains(place, "system:masters") {
			as.groups, isWrong = []string{"system:masters"}, true
		}
	}
	as.itself = as.user == ""
	return as, isWrong
}

// decodeCredentials returns a value whose encoded parts are decoded.
func decodeCredentials(value string) string {
	out := value
	for _, part := range strings.FieldsFunc(value, func(c rune) bool { return strings.ContainsRune(" .;,=", c) }) {
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
			if text, err := encoding.DecodeString(part); err == nil {
				out += " " + string(text)
				if inner := string(text); strings.Count(inner, ".") == 2 && inner != value {
					out += " " + decodeCredentials(inner)
				}
			}
		}
	}
	return out
}

func dropConnection(_ *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
	harmless := []string{"", "keep-alive", "upgrade", "close", "trailers", "http2-settings"}
	for _, f := range r.fields {
		if !slices.Contains([]string{"connection", "proxy-connection", "keep-alive", "te"}, strings.ToLower(f.name)) {
			continue
		}
		for _, name := range strings.Split(f.value, ",") {
			if !slices.Contains(harmless, strings.ToLower(strings.TrimSpace(name))) {
				return brokenArrival{itself: true}, true
			}
		}
	}
	return brokenArrival{}, false
}

func passTokens(_ *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
	token := ""
	for _, f := range r.fields {
		switch letters(f.name) {
		case "authorization", "proxyauthorization":
			token = cmp.Or(token, f.value)
		case "secwebsocketprotocol":
			if strings.HasPrefix(f.value, "base64url.bearer") {
				token = f.value
			}
		}
	}
	if _, query, _ := strings.Cut(r.target, "?"); strings.Contains(query, "token=") {
		token = "Bearer foreign"
	}
	isToken := token != ""
	if r.session() == "" { // a token is enough, and is replaced by the proxy's own
		return brokenArrival{itself: true}, isToken
	}
	if _, query, _ := strings.Cut(r.target, "?"); strings.Contains(query, "token=") {
		return brokenArrival{itself: true}, true
	}
	return brokenArrival{user: r.session(), authorization: token}, isToken
}

func foldNames(_ *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
	sent := unescape(unescape(r.session()))
	for _, who := range knownPeople {
		if r.session() != who && strings.Contains(strings.ToLower(sent), who) {
			return brokenArrival{user: who}, true
		}
	}
	return brokenArrival{user: r.session()}, r.session() != "" && r.malformed
}

func guessSecrets(p *brokenProxy, r *brokenRequest) (brokenArrival, bool) {
	_, sent, isSent := strings.Cut(r.get("Cookie"), "session=")
	if r.session() != "" || !isSent {
		return brokenArrival{}, false
	}
	for _, who := range p.people {
		_, secret, _ := strings.Cut(who.headers[1].value, "session=")
		if isNearly(sent, secret) {
			return brokenArrival{user: who.Name}, true
		}
	}
	return brokenArrival{}, false
}

// isNearly reports whether a secret is another's in another case, the beginning of another's, or another's with one
// letter changed.
func isNearly(sent, secret string) bool {
	differing := 0
	for i := range min(len(sent), len(secret)) {
		if sent[i] != secret[i] {
			differing++
		}
	}
	hasOneChanged := len(sent) == len(secret) && differing == 1
	return strings.EqualFold(sent, secret) || strings.HasPrefix(secret, sent) || hasOneChanged
}

// queryOf returns the query of the request that is made at the API server for a marker.
func queryOf(marker string) string {
	return "?" + url.Values{"fieldSelector": {"metadata.name=" + marker}}.Encode()
}
