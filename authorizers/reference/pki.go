package reference

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// PKI is an authority with one certificate for each side. The authority's key is
// thrown away.
type PKI struct {
	ca, clientCert, clientKey []byte // PEM
	pool                      *x509.CertPool
	serving                   tls.Certificate
}

// NewPKI makes certificates for the loopback addresses. The two ends are when
// the serving and the client certificate expire, which lets a test have expired
// ones.
func NewPKI(servingEnd, clientEnd time.Time) (*PKI, error) {
	end := time.Now().Add(24 * time.Hour)
	ca, caKey, err := sign("authzconf-reference-ca", end, nil, nil)
	if err != nil {
		return nil, err
	}
	serving, servingKey, err := sign("authzconf-reference", servingEnd, ca, caKey)
	if err != nil {
		return nil, err
	}
	client, clientKey, err := sign("authzconf-certify", clientEnd, ca, caKey)
	if err != nil {
		return nil, err
	}
	p := &PKI{
		ca: encode(ca), clientCert: encode(client), pool: x509.NewCertPool(),
		serving: tls.Certificate{Certificate: [][]byte{serving.Raw}, PrivateKey: servingKey, Leaf: serving},
	}
	p.pool.AddCert(ca)
	if p.clientKey, err = keyutil.MarshalPrivateKeyToPEM(clientKey); err != nil {
		return nil, fmt.Errorf("reference: encoding the client key: %w", err)
	}
	return p, nil
}

// serverConfig accepts only clients with a certificate of this PKI.
func (p *PKI) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{p.serving},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: p.pool,
	}
}

// sign makes a key and a certificate, signed by itself if there is no parent.
func sign(name string, end time.Time, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("reference: making a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("reference: making a serial number: %w", err)
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: end.Add(-48 * time.Hour), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"},
	}
	if parent == nil {
		c.IsCA, c.KeyUsage, c.ExtKeyUsage = true, c.KeyUsage|x509.KeyUsageCertSign, nil
		parent, parentKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), parentKey)
	if err != nil {
		return nil, nil, fmt.Errorf("reference: signing the certificate of %s: %w", name, err)
	}
	signed, err := x509.ParseCertificate(der)
	return signed, key, err
}

func encode(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
