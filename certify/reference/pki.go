package reference

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/authzconf/authzconf/clusters"
)

// PKI is an authority with one certificate for each side. The authority's key is thrown away.
type PKI struct {
	ca, clientCert, clientKey []byte // PEM
	pool                      *x509.CertPool
	serving                   tls.Certificate
}

// NewPKI makes certificates for the loopback addresses. The two ends are when the serving and the client
// certificate expire, which lets a test have expired ones.
func NewPKI(servingEnd, clientEnd time.Time) (*PKI, error) {
	end := time.Now().Add(24 * time.Hour)
	ca, caKey, err := clusters.Sign(certificate("authzconf-reference-ca", end), nil, nil)
	if err != nil {
		return nil, err
	}
	serving, servingKey, err := clusters.Sign(endpoint("authzconf-reference", servingEnd), ca, caKey)
	if err != nil {
		return nil, err
	}
	client, clientKey, err := clusters.Sign(endpoint("authzconf-certify", clientEnd), ca, caKey)
	if err != nil {
		return nil, err
	}
	p := &PKI{
		ca: clusters.EncodeCertificate(ca), clientCert: clusters.EncodeCertificate(client), pool: x509.NewCertPool(),
		serving: tls.Certificate{Certificate: [][]byte{serving.Raw}, PrivateKey: servingKey, Leaf: serving},
	}
	p.pool.AddCert(ca)
	if p.clientKey, err = keyutil.MarshalPrivateKeyToPEM(clientKey); err != nil {
		return nil, fmt.Errorf("reference: encoding the client key: %w", err)
	}
	return p, nil
}

// ServerConfig accepts only clients with a certificate of this PKI.
func (p *PKI) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{p.serving},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: p.pool,
	}
}

// certificate is the form of one of this PKI.
func certificate(name string, end time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: end.Add(-48 * time.Hour), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
}

// endpoint is that of a server or a client.
func endpoint(name string, end time.Time) *x509.Certificate {
	c := certificate(name, end)
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	c.IPAddresses, c.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, []string{"localhost"}
	return c
}
