package local

import (
	"crypto"
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

// newPKI makes the keys of one control plane, valid from an hour before now.
func newPKI(now time.Time) (*pki, error) {
	servingCA, err := newAuthority("authzconf-serving-ca", now)
	if err != nil {
		return nil, err
	}
	clientCA, err := newAuthority("authzconf-client-ca", now)
	if err != nil {
		return nil, err
	}
	frontProxyCA, err := newAuthority("authzconf-front-proxy-ca", now)
	if err != nil {
		return nil, err
	}
	out := &pki{servingCA: servingCA.pem, clientCA: clientCA.pem, frontProxyCA: frontProxyCA.pem}
	out.serving, err = servingCA.issue(pkix.Name{CommonName: "kube-apiserver"}, x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, err
	}
	out.admin, err = clientCA.issue(
		pkix.Name{CommonName: adminName, Organization: []string{"system:masters"}}, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	out.frontProxy, err = frontProxyCA.issue(pkix.Name{CommonName: frontProxyName}, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	out.serviceAccountKey, out.serviceAccountPub, err = signingKey()
	return out, err
}

// servingNames are the names under which the API server may be reached, from here and, as in any
// cluster, from inside.
var servingNames = []string{
	"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
}

// servingIPs are the loopback address and the first address of serviceRange.
var servingIPs = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 0, 0, 1)}

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

func newAuthority(name string, now time.Time) (*authority, error) {
	template, err := certificateTemplate(pkix.Name{CommonName: name}, now)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of %s: %w", name, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: certPEM(der)}, nil
}

// issue makes a key and a certificate for it, valid as long as the authority.
func (a *authority) issue(subject pkix.Name, usage x509.ExtKeyUsage) (keyPair, error) {
	template, err := certificateTemplate(subject, a.cert.NotBefore.Add(time.Hour))
	if err != nil {
		return keyPair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	if usage == x509.ExtKeyUsageServerAuth {
		template.DNSNames, template.IPAddresses = servingNames, servingIPs
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("making the key of %s: %w", subject.CommonName, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("making the certificate of %s: %w", subject.CommonName, err)
	}
	private, err := keyPEM(key)
	return keyPair{cert: certPEM(der), key: private}, err
}

func certificateTemplate(subject pkix.Name, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               subject,
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(keyLifetime),
		BasicConstraintsValid: true,
	}, nil
}

// signingKey makes the key pair for ServiceAccount tokens.
func signingKey() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making the service account key: %w", err)
	}
	private, err = keyPEM(key)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, err
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
