package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// certificate is a requestor's own, with its key, both in PEM.
type certificate struct{ cert, key []byte }

// signCertificate makes the certificate of a requestor that has one of its own.
func (run *run) signCertificate(alias string) (err error) {
	r := run.bound.Requestors[alias]
	if !r.Certificate {
		return nil
	}
	var cert certificate
	if cert.cert, cert.key, err = run.target.SignClient(r.User, r.Groups); err != nil {
		return fmt.Errorf("a certificate for %s: %w", r.User, err)
	}
	run.certificates[alias] = cert
	return nil
}

// credentials returns what a request authenticates with, the requestor's own first.
func (run *run) credentials(r *scenarios.Request) (list []server.Credential) {
	for _, alias := range append([]string{r.By}, r.With...) {
		keyPair := run.certificates[alias]
		list = append(list,
			server.Credential{
				Requestor:   run.bound.Requestors[alias],
				Token:       run.tokens[alias],
				Certificate: keyPair.cert,
				Key:         keyPair.key,
			},
		)
	}
	return list
}

// recordCredentials writes down whose credentials a request carries that has more than what its headers say of one.
func (run *run) recordCredentials(sentRequest *verdicts.SentRequest, r *scenarios.Request, header http.Header) {
	read := func(alias string) *scenarios.User {
		switch run.bound.Requestors[alias].Credential() {
		case scenarios.BearerToken:
			return tokenUser(header)
		case scenarios.ProxyHeaders:
			return proxyUser(header)
		case scenarios.ClientCertificate:
			return run.certificates[alias].user(run.bound.Requestors[alias])
		default:
			return nil
		}
	}
	sentRequest.Credential, sentRequest.Others = read(r.By), nil
	for _, alias := range r.With {
		sentRequest.Others = append(sentRequest.Others, read(alias))
	}
}

// user returns whom an API server takes the owner of the certificate for (CommonNameUserConversion of
// k8s.io/apiserver/pkg/authentication/request/x509). It was made for exactly this requestor.
func (c certificate) user(r scenarios.Requestor) *scenarios.User {
	block, _ := pem.Decode(c.cert)
	if block == nil {
		return nil
	}
	sum := sha256.Sum256(block.Bytes)
	return &scenarios.User{
		Name:   r.User,
		Groups: r.Groups,
		Extra:  map[string][]string{user.CredentialIDKey: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}
}

// credentialOf returns whom the headers of a request name that carries one credential; nil if they carry none.
func credentialOf(h http.Header) *scenarios.User {
	if u := tokenUser(h); u != nil {
		return u
	}
	return proxyUser(h)
}

// tokenUser returns whose token a request carries; nil if it carries none.
func tokenUser(h http.Header) *scenarios.User {
	if token, ok := strings.CutPrefix(h.Get("Authorization"), "Bearer "); ok {
		return verdicts.TokenUser(token)
	}
	return nil
}

// proxyUser returns whom the headers of a proxy name; nil if there are none.
func proxyUser(h http.Header) *scenarios.User {
	if _, ok := h[remote+"User"]; !ok {
		return nil
	}
	u := server.RemoteUser(h)
	return &u
}
