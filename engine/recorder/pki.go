package recorder

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/authzconf/authzconf/clusters"
)

// lifetime is longer than any run. Certificates die with their recorder, so nothing is gained by a shorter one.
const lifetime = 365 * 24 * time.Hour

// pki is what makes a recorder and an API server trust each other and nobody else: an authority whose key is
// thrown away once it has signed one certificate for each side.
type pki struct {
	ca                    []byte // PEM
	clientCert, clientKey []byte // PEM
	authority             *x509.CertPool
	serving               tls.Certificate
}

// newPKI makes a PKI whose serving certificate is valid for the loopback
// addresses and for hosts, which may be names or IP addresses.
func newPKI(hosts []string) (*pki, error) {
	ca, caKey, err := clusters.Sign(template("authzconf-recorder-ca"), nil, nil)
	if err != nil {
		return nil, err
	}
	serving := template("authzconf-recorder")
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	addHosts(serving, append([]string{"127.0.0.1", "::1", "localhost"}, hosts...))
	cert, key, err := clusters.Sign(serving, ca, caKey)
	if err != nil {
		return nil, err
	}
	client := template("authzconf-recorder-client")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	clientCert, clientKey, err := clusters.Sign(client, ca, caKey)
	if err != nil {
		return nil, err
	}
	p := &pki{
		ca:         clusters.EncodeCertificate(ca),
		clientCert: clusters.EncodeCertificate(clientCert),
		authority:  x509.NewCertPool(),
		serving:    tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert},
	}
	p.authority.AddCert(ca)
	if p.clientKey, err = keyutil.MarshalPrivateKeyToPEM(clientKey); err != nil {
		return nil, fmt.Errorf("recorder: encoding the client key: %w", err)
	}
	return p, nil
}

// serverConfig accepts only clients whose certificate this PKI signed.
func (p *pki) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{p.serving},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    p.authority,
	}
}

// template is what all certificates of a PKI have in common. It starts in the
// past because the clocks of an API server in a virtual machine may be behind.
func template(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
}

// addHosts puts each host once where verifiers look for its kind.
func addHosts(c *x509.Certificate, hosts []string) {
	slices.Sort(hosts)
	for _, h := range slices.Compact(hosts) {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
}
