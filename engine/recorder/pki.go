package recorder

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/authzconf/authzconf/clusters"
)

// Lifetime is longer than any run. Certificates die with their recorder, so nothing is gained by a shorter one.
const Lifetime = 365 * 24 * time.Hour

// PKI is what makes an authorizer and an API server trust each other and nobody else: an authority whose key is
// thrown away once it has signed one certificate for each side.
type PKI struct {
	CA, ClientCert, ClientKey []byte // PEM

	authority *x509.CertPool
	serving   tls.Certificate
}

// NewPKI makes a PKI whose serving certificate is valid for the loopback addresses and for more names and addresses. The
// two ends are when the serving and the client certificate expire, which lets a test have expired ones.
func NewPKI(servingEnd, clientEnd time.Time, more ...string) (*PKI, error) {
	ca, caKey, err := clusters.Sign(template("authzconf-authority", time.Now().Add(Lifetime)), nil, nil)
	if err != nil {
		return nil, err
	}
	serving := template("authzconf-authorizer", servingEnd)
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range append([]string{"localhost", "127.0.0.1", "::1"}, more...) {
		if ip := net.ParseIP(name); ip != nil {
			serving.IPAddresses = append(serving.IPAddresses, ip)
		} else {
			serving.DNSNames = append(serving.DNSNames, name)
		}
	}
	cert, key, err := clusters.Sign(serving, ca, caKey)
	if err != nil {
		return nil, err
	}
	client := template("authzconf-client", clientEnd)
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	clientCert, clientKey, err := clusters.Sign(client, ca, caKey)
	if err != nil {
		return nil, err
	}
	p := &PKI{
		CA: clusters.EncodeCertificate(ca), ClientCert: clusters.EncodeCertificate(clientCert), authority: x509.NewCertPool(),
		serving: tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert},
	}
	p.authority.AddCert(ca)
	if p.ClientKey, err = keyutil.MarshalPrivateKeyToPEM(clientKey); err != nil {
		return nil, fmt.Errorf("encoding the client key: %w", err)
	}
	return p, nil
}

// Kubeconfig is the webhook configuration, of this name, for a server with these certificates. It holds the client's key.
func (p *PKI) Kubeconfig(name, url string) ([]byte, error) {
	return clusters.Kubeconfig(name, &rest.Config{
		Host: url, TLSClientConfig: rest.TLSClientConfig{CAData: p.CA, CertData: p.ClientCert, KeyData: p.ClientKey},
	})
}

// ServerConfig accepts only clients whose certificate this PKI signed.
func (p *PKI) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{p.serving},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    p.authority,
	}
}

// template is what all certificates of a PKI have in common. It starts a day before Lifetime because the clocks of an
// API server in a virtual machine may be behind.
func template(name string, end time.Time) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: end.Add(-Lifetime - 24*time.Hour), NotAfter: end}
}
