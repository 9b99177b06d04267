package local

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/authzconf/authzconf/clusters"
)

const (
	// keyLifetime outlives any run; the keys die with the run's folder anyway.
	keyLifetime = 365 * 24 * time.Hour
	// frontProxyName is the common name kube-apiserver accepts request headers from.
	frontProxyName = "authzconf-front-proxy"
	adminName      = "authzconf-admin"
)

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

// servingIPs are the loopback address and the first address of the range of Services.
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
		authority := &x509.Certificate{Subject: pkix.Name{CommonName: c.authority}}
		c.leaf.ExtKeyUsage = []x509.ExtKeyUsage{c.usage}
		for _, cert := range []*x509.Certificate{authority, c.leaf} {
			cert.NotBefore, cert.NotAfter = now.Add(-time.Hour), now.Add(keyLifetime)
		}
		ca, caKey, err := clusters.Sign(authority, nil, nil)
		if err != nil {
			return nil, err
		}
		leaf, key, err := clusters.Sign(c.leaf, ca, caKey)
		if err != nil {
			return nil, err
		}
		*c.ca, c.pair.cert = clusters.EncodeCertificate(ca), clusters.EncodeCertificate(leaf)
		if c.pair.key, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
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
	out.serviceAccountPub = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	out.serviceAccountKey, err = keyutil.MarshalPrivateKeyToPEM(key)
	return out, err
}
