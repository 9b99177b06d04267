package shard

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/profile"
)

// certificate returns a certificate of the loopback interface that is signed by itself or by an issuer.
func certificate(t *testing.T, issuer *tls.Certificate, life time.Duration) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(life),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := template, any(key)
	if issuer != nil {
		parent, signer = issuer.Leaf, issuer.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestServerCertificate has a server that comes back with a certificate that has expired or is another's. The requests
// after that are counted as what they are, and the shard goes on.
func TestServerCertificate(t *testing.T) {
	for _, c := range []struct {
		name string
		next func(first *tls.Certificate) tls.Certificate
	}{
		{"expires", func(first *tls.Certificate) tls.Certificate { return certificate(t, first, -time.Minute) }},
		{"changes", func(*tls.Certificate) tls.Certificate { return certificate(t, nil, time.Hour) }},
		{"stays", func(first *tls.Certificate) tls.Certificate { return *first }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			first := certificate(t, nil, time.Hour)
			second := c.next(&first)
			var serve atomic.Pointer[tls.Certificate]
			serve.Store(&first)
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			s.EnableHTTP2 = true
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				return &tls.Config{Certificates: []tls.Certificate{*serve.Load()}, NextProtos: []string{"h2"}}, nil
			}}
			s.StartTLS()
			defer s.Close()
			job := jobs(t, 1, func(http.ResponseWriter, *http.Request) {})[0]
			job.Profile.Block = 2 * time.Second
			job.Servers[profile.GateOffServer] = Endpoint{
				Hosts: []string{s.URL},
				CA:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: first.Certificate[0]}),
			}
			w, err := NewWorker(job)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = w.Close() }()
			if err := w.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(1200*time.Millisecond, func() {
				serve.Store(&second)
				s.CloseClientConnections()
			})
			b, err := w.Block(t.Context(), order())
			if err != nil {
				t.Fatal(err)
			}
			var all int64
			for _, n := range b.Answers {
				all += n
			}
			bad := c.name != "stays"
			if b.Answers["200"] == 0 || bad != (b.Answers["tls"] > 0) || bad != (b.Wrong["tls: expected 200"] > 0) || all != b.Sent ||
				b.Sent != b.Planned {
				t.Errorf("planned %d, sent %d, answers %v", b.Planned, b.Sent, b.Answers)
			}
		})
	}
}

// TestTokenExpires checks that a token that expires is answered with 401 from then on, and counted as that.
func TestTokenExpires(t *testing.T) {
	end := time.Now().Add(1200 * time.Millisecond)
	job := jobs(t, 1, func(w http.ResponseWriter, r *http.Request) {
		if time.Now().After(end) && r.Header.Get("Authorization") != "" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})[0]
	job.Profile.Block = 2 * time.Second
	w, err := NewWorker(job)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	if err := w.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, err := w.Block(t.Context(), order())
	if err != nil || b.Answers["200"] == 0 || b.Answers["401"] == 0 || b.Wrong["401: expected 200"] != b.Answers["401"] ||
		b.Answers["200"]+b.Answers["401"] != b.Planned {
		t.Errorf("%v, %s", err, fmt.Sprint(b.Answers, b.Wrong, b.Planned))
	}
}
