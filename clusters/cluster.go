// Package clusters defines what authzconf needs of a running cluster. The packages below it provide clusters: local as
// child processes, kind as containers with real nodes, existing from a kubeconfig.
package clusters

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Cluster is a running API server with the ways to reach it. Its methods may be called from several goroutines.
type Cluster interface {
	// Admin is a member of system:masters (on an existing cluster, the user of its kubeconfig), without a limit of
	// requests in the client.
	Admin() *rest.Config
	// FrontProxy authenticates as a proxy that may name any user in X-Remote- headers. It is nil if the cluster has
	// none.
	FrontProxy() *rest.Config
	// Anonymous has no credentials, but trusts the server.
	Anonymous() *rest.Config
	// Err returns which part of the cluster has died by itself, with its last log lines. It is nil before that.
	Err() error
	// Stop ends everything and removes everything from disk. It is idempotent.
	Stop() error
}

// Kubeconfig returns a kubeconfig with one context of this name, which has the credentials of a client configuration.
func Kubeconfig(name string, c *rest.Config) ([]byte, error) {
	return Kubeconfigs(Context{name, c})
}

// Context is a context of a kubeconfig, with the client configuration whose credentials it has.
type Context struct {
	Name   string
	Config *rest.Config
}

// Kubeconfigs writes a kubeconfig with these contexts. The first is the current one.
func Kubeconfigs(contexts ...Context) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	for _, context := range contexts {
		name, c := context.Name, context.Config
		config.Clusters[name] = &clientcmdapi.Cluster{
			Server:                   c.Host,
			CertificateAuthorityData: c.CAData,
			TLSServerName:            c.ServerName,
			InsecureSkipTLSVerify:    c.Insecure,
		}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{
			ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, Token: c.BearerToken, Username: c.Username, Password: c.Password,
		}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
		if config.CurrentContext == "" {
			config.CurrentContext = name
		}
	}
	return clientcmd.Write(*config)
}

// Pause waits, and returns false if the context ends first.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Sign makes a key and a certificate. It is for the short-lived certificates by which the programs that a run starts
// trust one another and nobody else. The certificate is signed by parent or, if there is no parent, is an authority
// signed by itself. Its serial number is random, its key is for signatures, and everything else is as in c.
func Sign(c, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	c.KeyUsage |= x509.KeyUsageDigitalSignature
	c.BasicConstraintsValid = true
	if parent == nil {
		c.IsCA = true
		c.KeyUsage |= x509.KeyUsageCertSign
		parent, parentKey = c, key
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, fmt.Errorf("making a serial number: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), parentKey)
	if err != nil {
		return nil, nil, fmt.Errorf("signing the certificate of %s: %w", c.Subject.CommonName, err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the certificate of %s: %w", c.Subject.CommonName, err)
	}
	return signed, key, nil
}

// EncodeCertificate is a certificate in PEM.
func EncodeCertificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
