package scenarios

import "slices"

// CredentialKind is a way to authenticate. A request can carry one credential of each kind at once.
type CredentialKind string

const (
	// NoCredential is what an anonymous requestor has.
	NoCredential CredentialKind = "none"
	// ProxyHeaders name the user whom a proxy has authenticated. They count if the proxy's certificate comes with them.
	ProxyHeaders CredentialKind = "headers of a proxy"
	// ClientCertificate is one of the user's own.
	ClientCertificate CredentialKind = "client certificate"
	// BearerToken is that of a service account.
	BearerToken CredentialKind = "bearer token"
)

// Credential returns how the requestor authenticates.
func (r Requestor) Credential() CredentialKind {
	switch {
	case r.Anonymous:
		return NoCredential
	case r.ServiceAccount != nil:
		return BearerToken
	case r.Certificate:
		return ClientCertificate
	default:
		return ProxyHeaders
	}
}

// Credentials returns the requestors whose credentials a request of the scenario carries: its own first.
func (s *Scenario) Credentials(r *Request) []Requestor {
	list := []Requestor{s.Requestors[r.By]}
	for _, alias := range r.With {
		list = append(list, s.Requestors[alias])
	}
	return list
}

// checkCredentials checks that the credentials of a request can be sent in one.
func (c *checker) checkCredentials(r *Request, path []any) {
	if c.src.failedAt(at("requestors")) {
		return
	}
	carried := []CredentialKind{c.s.Requestors[r.By].Credential()}
	for i, alias := range r.With {
		p := extend(path, "with", i)
		other, known := c.s.Requestors[alias]
		kind := other.Credential()
		switch {
		case !known:
			c.fail(p, "with has %q, which is not a requestor (expected one of their aliases)", alias)
		case kind == NoCredential:
			c.fail(p, "with has %q, who is anonymous (expected a requestor with a credential)", alias)
		case slices.Contains(carried, kind):
			c.fail(p, "the request carries two credentials of the kind %s (expected one of each)", kind)
		case kind == ClientCertificate && carried[0] == ProxyHeaders:
			c.fail(p, "the request carries the certificate of %q and that of the proxy (expected one: a connection has no more)", alias)
		}
		carried = append(carried, kind)
	}
}
