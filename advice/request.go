package advice

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// Sender is what an audit event says about a request that impersonates.
type Sender struct {
	Requestor scenarios.User        // who authenticated, with all extra
	As        scenarios.Impersonate // what the impersonation headers asked for, as far as it follows from the resulting user
	// Request is the request as authorization sees it, including its selectors.
	Request oracle.Attributes
}

// ReadSender returns what an event says about its request. An error means that the event says something that no API
// server says.
func ReadSender(e *auditv1.Event) (Sender, error) {
	attributes, err := readAttributes(e.Verb, e.RequestURI)
	who := scenarios.UserOf(e.User.Username, e.User.UID, e.User.Groups, e.User.Extra)
	return Sender{Requestor: who, As: headersOf(e), Request: attributes}, err
}

// readAttributes returns the request of an event as authorization saw it. It is read from the URI, because objectRef
// has the name of an object that is created, which authorization did not know (k8s.io/apiserver/pkg/audit/request.go,
// LogRequestObject).
func readAttributes(verb, uri string) (oracle.Attributes, error) {
	u, err := url.ParseRequestURI(uri)
	if err != nil {
		return oracle.Attributes{}, fmt.Errorf("requestURI %q cannot be parsed", uri)
	}
	a := oracle.ParseRequest(cmp.Or(scenarios.HTTPMethods[verb], strings.ToUpper(verb)), u)
	if a.Verb != verb {
		return oracle.Attributes{}, fmt.Errorf("verb %q does not go with requestURI %q", verb, uri)
	}
	return a, nil
}
