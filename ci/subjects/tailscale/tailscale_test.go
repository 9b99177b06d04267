// Package tailscale tries authzconf deputy --proxy on the API server proxy of Tailscale's Kubernetes operator, as k8s-proxy
// starts it. It is a module of its own for its dependencies, and because it asks for a newer Go than ours.
package tailscale

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"
	"tailscale.com/ipn/store/mem"
	apiproxy "tailscale.com/k8s-operator/api-proxy"
	"tailscale.com/kube/kubetypes"
	"tailscale.com/net/netns"
	"tailscale.com/tailcfg"
	"tailscale.com/tsnet"
	"tailscale.com/tstest/integration"
	"tailscale.com/tstest/integration/testcontrol"
	"tailscale.com/types/logger"
)

// people are called as Tailscale's own control server for tests calls who joins second and third, after the proxy.
var people = []string{"user-2@fake-control.example.net", "user-3@fake-control.example.net"}

// address is where the proxy listens, and FOLDER where its certificates are: then the test binary is the proxy.
const address = "127.0.0.1:18980"

// TestServe is the proxy: a server of DERP, by which nodes of a tailnet find each other, can be had by tests only.
func TestServe(t *testing.T) {
	if folder := os.Getenv("FOLDER"); folder != "" {
		t.Fatal(serve(t.Context(), integration.RunDERPAndSTUN(t, logger.Discard, "127.0.0.1"), folder))
	}
}

// serve starts a tailnet with the proxy and a node of each person, and passes connections on as tailscaled does: whose
// it is says the PROXY protocol, by the address of a node. Here a client certificate says whose a connection is.
func serve(ctx context.Context, derp *tailcfg.DERPMap, folder string) error {
	netns.SetEnabled(false)
	control := &testcontrol.Server{DERPMap: derp, Logf: logger.Discard}
	control.HTTPTestServer = httptest.NewUnstartedServer(control)
	control.HTTPTestServer.Start()
	addresses, proxy := map[string]string{}, (*tsnet.Server)(nil)
	for i, name := range append([]string{"proxy"}, people...) {
		node := &tsnet.Server{
			Dir:        filepath.Join(folder, fmt.Sprintf("node-%d", i)),
			Hostname:   fmt.Sprintf("node-%d", i),
			ControlURL: control.HTTPTestServer.URL,
			Store:      new(mem.Store),
			Ephemeral:  true,
			Logf:       logger.Discard,
			UserLogf:   logger.Discard,
		}
		status, err := node.Up(ctx)
		if err != nil {
			return err
		}
		if i == 0 {
			proxy = node
		}
		addresses[name] = status.TailscaleIPs[0].String()
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	server, err := apiproxy.NewAPIServerProxy(zap.NewNop().Sugar(), config, proxy, kubetypes.APIServerProxyModeAuth, false)
	if err != nil {
		return err
	}
	go func() { log.Fatal(server.Run(ctx)) }() // at localhost:80, and nowhere else
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "server.crt"), filepath.Join(folder, "server.key"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca)
	listener, err := tls.Listen(
		"tcp",
		address,
		&tls.Config{
			Certificates: []tls.Certificate{pair},
			ClientCAs:    clients,
			ClientAuth:   tls.RequireAndVerifyClientCert,
			NextProtos:   []string{"http/1.1"},
		},
	)
	if err != nil {
		return err
	}
	for {
		c, err := listener.Accept()
		if err != nil {
			return err
		}
		go pass(ctx, c.(*tls.Conn), addresses)
	}
}

// pass passes a connection on to the proxy, as one of the node of whom the certificate names.
func pass(ctx context.Context, c *tls.Conn, addresses map[string]string) {
	defer func() { _ = c.Close() }()
	if c.HandshakeContext(ctx) != nil {
		return
	}
	up, err := net.Dial("tcp", "localhost:80")
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	fmt.Fprintf(up, "PROXY TCP4 %s 127.0.0.1 40000 80\r\n", addresses[c.ConnectionState().PeerCertificates[0].Subject.CommonName])
	go func() {
		_, _ = io.Copy(up, c)
		_ = up.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, up)
}

// TestTailscale tries it with the authzconf that AUTHZCONF names, and verifies the report. What the verdict is is not part of
// the test: it is somebody else's program.
func TestTailscale(t *testing.T) {
	authzconf := os.Getenv("AUTHZCONF")
	if authzconf == "" {
		t.Skip("AUTHZCONF names no program: make subjects")
	}
	if l, err := net.Listen("tcp", "localhost:80"); err != nil {
		t.Skipf("the proxy listens at localhost:80, which cannot be had: %v", err)
	} else if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	folder, reports := t.TempDir(), os.Getenv("SUBJECTS")
	if reports == "" {
		reports = folder
	}
	certificates(t, folder)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(reports, "tailscale")
	args := []string{
		"deputy",
		"--proxy",
		"https://" + address,
		"--proxy-ca",
		filepath.Join(folder, "ca.crt"),
		"--proxy-command",
		fmt.Sprintf("FOLDER=%s exec %s -test.run '^TestServe$'", folder, program),
		"--impersonation",
		"legacy",
		"--pairs",
		"200",
		"--seed",
		"5",
		"--report-dir",
		report,
	}
	for _, name := range people {
		at := filepath.Join(folder, name)
		args = append(args, "--identity", fmt.Sprintf("%s=client-cert:%s.crt,%s.key", name, at, at))
	}
	out, err := exec.Command(authzconf, args...).CombinedOutput()
	t.Logf("%s", out)
	if err != nil && !strings.Contains(err.Error(), "exit status 1") {
		t.Fatal(err)
	}
	if out, err := exec.Command(authzconf, "verify", report).CombinedOutput(); err != nil {
		t.Errorf("the report does not verify: %s", out)
	}
}

// certificates writes an authority, and what it signed for the server and for the people.
func certificates(t *testing.T, folder string) {
	var authority *x509.Certificate
	var authorityKey *ecdsa.PrivateKey
	for i, name := range append([]string{"ca", "server"}, people...) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{
			SerialNumber:          big.NewInt(int64(i + 1)),
			Subject:               pkix.Name{CommonName: name},
			NotAfter:              time.Now().Add(time.Hour),
			IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
			KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			IsCA:                  i == 0,
			BasicConstraintsValid: true,
		}
		if i == 0 {
			authority, authorityKey = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, authority, &key.PublicKey, authorityKey)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: raw}} {
			if err := os.WriteFile(filepath.Join(folder, file), pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
