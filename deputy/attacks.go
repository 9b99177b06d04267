package deputy

import (
	"cmp"
	_ "embed" // the table of attacks
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/authzconf/authzconf/fixtures"
)

//go:embed attacks.yaml
var attacksFile []byte

// attackKind is a kind of attack in attacks.yaml, and a case of a report.
type attackKind struct {
	Kind    string   `json:"kind"`
	About   string   `json:"about"`
	Attacks []attack `json:"attacks"`
}

// attack is an entry of attacks.yaml, which says what its fields mean.
type attack struct {
	Name          string       `json:"name"`
	Requests      []rawRequest `json:"requests,omitempty"`
	Pipelined     bool         `json:"pipelined,omitempty"`
	Protocol      string       `json:"protocol,omitempty"`
	NameSpelling  string       `json:"spelled,omitempty"`
	Arrives       string       `json:"arrives,omitempty"`
	Variants      []attack     `json:"variants,omitempty"`
	CountsReviews bool         `json:"counts,omitempty"`
	rawRequest    `json:",inline"`

	// kind is the kind of the attack. It is empty for requests that are not in the table.
	kind string
	// concurrent means that other requests are sent at the same time. Then answers may take as long as those of plain
	// requests.
	concurrent bool
}

// rawRequest is one request of an attack, as the table has it and as it is written to a connection.
type rawRequest struct {
	Who      string   `json:"who,omitempty"`
	Method   string   `json:"method,omitempty"`
	Target   string   `json:"target,omitempty"`
	Lines    []string `json:"lines,omitempty"`
	Trailers []string `json:"trailers,omitempty"`
	Body     string   `json:"body,omitempty"`
	HangUp   bool     `json:"hangUp,omitempty"`
	// Cut means that the end of the header is left out.
	Cut bool `json:"cut,omitempty"`
	// Cluster says at which of two clusters the request may arrive.
	Cluster  string `json:"cluster,omitempty"`
	SamePort bool   `json:"samePort,omitempty"`
}

// These are the clusters at which a request may arrive. It is the first one unless an attack says otherwise.
const (
	firstClusterOnly  = ""
	secondClusterOnly = "there"
	anyCluster        = "either"
	missingCluster    = "nowhere"
)

// These are the senders of requests.
const senderMe, senderOther, senderNobody = "me", "other", "nobody"

const (
	arrivesAlways    = "always"
	arrivesReference = "reference"
	protocol2        = "HTTP/2"
	// controlsKind is the kind of the requests without tricks. By them the judge learns what a correct request looks
	// like.
	controlsKind = "controls"
	// clustersKind is the kind of the attacks that need two clusters behind the proxy.
	clustersKind = "clusters"
)

// attackKinds returns the table. Its first two attacks are the controls of the two people.
var attackKinds = sync.OnceValue(func() []attackKind {
	kinds := fixtures.Table[[]attackKind]("attacks.yaml", attacksFile)
	for i := range kinds {
		kinds[i].Attacks = expandVariants(kinds[i].Attacks)
		for n := range kinds[i].Attacks {
			a := &kinds[i].Attacks[n]
			a.kind = kinds[i].Kind
			a.fillIn()
		}
	}
	return kinds
})

// attacksOf returns the attacks of the selected kinds, in the order of the table.
func attacksOf(selected func(kind string) bool) (all []attack) {
	for _, k := range attackKinds() {
		if selected(k.Kind) {
			all = append(all, k.Attacks...)
		}
	}
	return all
}

// expandVariants returns one attack for each variant of an attack.
func expandVariants(list []attack) (all []attack) {
	for _, a := range list {
		for _, variant := range a.Variants {
			variant.Name, variant.Who, variant.Lines = variant.Name+": "+a.Name, a.Who, slices.Concat(a.Lines, variant.Lines)
			all = append(all, variant)
		}
		if a.Variants == nil {
			all = append(all, a)
		}
	}
	return all
}

// fillIn sets the fields that the table leaves out.
func (a *attack) fillIn() {
	if a.Requests == nil {
		a.Requests = []rawRequest{a.rawRequest}
	}
	for n := range a.Requests {
		r := &a.Requests[n]
		path := "{path}"
		if r.Cluster == secondClusterOnly {
			path = "{there}"
		}
		r.Who, r.Method, r.Target = cmp.Or(r.Who, senderMe), cmp.Or(r.Method, "GET"), cmp.Or(r.Target, path+"?{query}")
	}
}

// answerTimeout returns how long an attack waits for a connection and for each answer. A malformed request may get no
// answer.
func (a attack) answerTimeout() time.Duration {
	if a.concurrent {
		return timeout
	}
	return 3 * time.Second
}

// hasHeaderText reports whether one of the requests has a text in its header.
func (a attack) hasHeaderText(text string) bool {
	return slices.ContainsFunc(a.Requests, func(r rawRequest) bool { return strings.Contains(strings.Join(r.Lines, "\n"), text) })
}

// sharesURL reports whether several requests have the same URL.
func (a attack) sharesURL() bool {
	return slices.ContainsFunc(a.Requests, func(r rawRequest) bool { return strings.Contains(r.Target, "{same}") })
}

// usesPortAgain reports whether one of the requests is sent from the port of the one before it.
func (a attack) usesPortAgain() bool {
	return slices.ContainsFunc(a.Requests, func(r rawRequest) bool { return r.SamePort })
}

// needsTwoClusters reports whether the attack is about a second cluster.
func (a attack) needsTwoClusters() bool { return a.kind == clustersKind }

// isControl reports whether the attack has no tricks, so that its request has to arrive.
func (a attack) isControl() bool { return a.Arrives == arrivesAlways }

// wireText returns the request as it is written over HTTP/1.1. For a request over HTTP/2 it is what evidence and
// findings show.
func (r rawRequest) wireText() string {
	text := r.Method + " " + r.Target + " HTTP/1.1\r\n" + strings.Join(r.Lines, "\r\n")
	if r.Cut {
		return text
	}
	text += "\r\n\r\n" + r.Body
	if len(r.Trailers) > 0 {
		text += strings.Join(r.Trailers, "\r\n") + "\r\n"
	}
	return text
}
