package scenarios

import "slices"

// CredentialKind is a way to authenticate. A request can carry one credential of each kind at once.
type CredentialKind string

const (
	// NoCredential is the kind of an anonymous requestor.
	NoCredential CredentialKind = "none"
	// ProxyHeaders name the user whom a proxy has authenticated. They count only if the proxy's certificate is sent
	// with them.
	ProxyHeaders CredentialKind = "headers of a proxy"
	// ClientCertificate is a certificate of the user's own.
	ClientCertificate CredentialKind = "client certificate"
	// BearerToken is the token of a service account.
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

// Credentials returns the requestors whose credentials a request of the scenario carries, beginning with the requestor
// that sends it.
func (s *Scenario) Credentials(r *Request) []Requestor {
	list := []Requestor{s.Requestors[r.By]}
	for _, alias := range r.With {
		list = append(list, s.Requestors[alias])
	}
	return list
}

// checkCredentials checks that the credentials of a request can be sent together.
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
