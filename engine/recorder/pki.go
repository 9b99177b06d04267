package recorder

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/util/keyutil"
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

// newPKI makes a PKI whose serving certificate is valid for the loopback addresses and for one that is listened on.
func newPKI(address net.IP) (*pki, error) {
	ca, caKey, err := Sign(template("authzconf-recorder-ca"), nil, nil)
	if err != nil {
		return nil, err
	}
	serving := template("authzconf-recorder")
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serving.DNSNames, serving.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, address}
	cert, key, err := Sign(serving, ca, caKey)
	if err != nil {
		return nil, err
	}
	client := template("authzconf-recorder-client")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	clientCert, clientKey, err := Sign(client, ca, caKey)
	if err != nil {
		return nil, err
	}
	p := &pki{
		ca:         EncodeCertificate(ca),
		clientCert: EncodeCertificate(clientCert),
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
