package local

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/util/keyutil"
)

const (
	// keyLifetime outlives any run; the keys die with the run's folder anyway.
	keyLifetime = 365 * 24 * time.Hour
	// frontProxyName is the common name kube-apiserver accepts request headers from.
	frontProxyName = "authzconf-front-proxy"
	adminName      = "authzconf-admin"
)

// keyPair is a PEM certificate and its PEM private key.
type keyPair struct{ cert, key []byte }

// pki is all the key material of one control plane. Three authorities, so that a client
// certificate can never pass for a front proxy's, nor the other way round.
type pki struct {
	servingCA, clientCA, frontProxyCA []byte
	serving, admin, frontProxy        keyPair
	// serviceAccount is the key that signs ServiceAccount tokens, and its public half.
	serviceAccountKey, serviceAccountPub []byte
}

// files are the names, in the run's folder, of what kube-apiserver reads.
func (p *pki) files() map[string][]byte {
	return map[string][]byte{
		"client-ca.crt":       p.clientCA,
		"front-proxy-ca.crt":  p.frontProxyCA,
		"front-proxy.crt":     p.frontProxy.cert,
		"front-proxy.key":     p.frontProxy.key,
		"serving.crt":         p.serving.cert,
		"serving.key":         p.serving.key,
		"serving-ca.crt":      p.servingCA,
		"service-account.pub": p.serviceAccountPub,
		"service-account.key": p.serviceAccountKey,
	}
}

// servingNames are the names under which the API server may be reached, from here and, as in any cluster, from inside.
var servingNames = []string{
	"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
}

// servingIPs are the loopback address and the first address of serviceRange.
var servingIPs = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 0, 0, 1)}

// newPKI makes the keys of one control plane, valid from an hour before now.
func newPKI(now time.Time) (*pki, error) {
	out := &pki{}
	for _, c := range []struct {
		authority string
		ca        *[]byte
		leaf      *x509.Certificate
		usage     x509.ExtKeyUsage
		pair      *keyPair
	}{
		{
			"authzconf-serving-ca", &out.servingCA,
			&x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver"}, DNSNames: servingNames, IPAddresses: servingIPs},
			x509.ExtKeyUsageServerAuth, &out.serving,
		},
		{
			"authzconf-client-ca", &out.clientCA,
			&x509.Certificate{Subject: pkix.Name{CommonName: adminName, Organization: []string{"system:masters"}}},
			x509.ExtKeyUsageClientAuth, &out.admin,
		},
		{
			"authzconf-front-proxy-ca", &out.frontProxyCA,
			&x509.Certificate{Subject: pkix.Name{CommonName: frontProxyName}},
			x509.ExtKeyUsageClientAuth, &out.frontProxy,
		},
	} {
		ca, err := sign(&x509.Certificate{Subject: pkix.Name{CommonName: c.authority}, IsCA: true, KeyUsage: x509.KeyUsageCertSign}, nil, now)
		if err != nil {
			return nil, err
		}
		c.leaf.ExtKeyUsage = []x509.ExtKeyUsage{c.usage}
		leaf, err := sign(c.leaf, ca, now)
		if err != nil {
			return nil, err
		}
		*c.ca, c.pair.cert = encode("CERTIFICATE", ca.cert.Raw), encode("CERTIFICATE", leaf.cert.Raw)
		if c.pair.key, err = keyutil.MarshalPrivateKeyToPEM(leaf.key); err != nil {
			return nil, err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the service account key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	out.serviceAccountPub = encode("PUBLIC KEY", public)
	out.serviceAccountKey, err = keyutil.MarshalPrivateKeyToPEM(key)
	return out, err
}

// signed is a certificate with its key.
type signed struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// sign makes a key and a certificate for it, signed by an authority, or by itself without one.
func sign(c *x509.Certificate, by *signed, now time.Time) (*signed, error) {
	name := c.Subject.CommonName
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of %s: %w", name, err)
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	c.NotBefore, c.NotAfter, c.BasicConstraintsValid = now.Add(-time.Hour), now.Add(keyLifetime), true
	c.KeyUsage |= x509.KeyUsageDigitalSignature
	if by == nil {
		by = &signed{c, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	return &signed{cert, key}, err
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
