package deputy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/engine/product/producttest"
	"github.com/authzconf/authzconf/verdicts"
)

// helperEnv makes the test's own program run as something that a test starts.
const helperEnv = "AUTHZCONF_DEPUTY_HELPER"

func TestMain(m *testing.M) {
	subject := strings.Split(os.Getenv(helperEnv), "|")
	switch dir, address, ok := strings.Cut(os.Getenv(helperEnv), ","); {
	case len(subject) == 3:
		log.Fatal(runTwoClusterDeputy(subject[1], subject[2]))
	case len(subject) == 4:
		log.Fatal(runSmallDashboard(subject[1], subject[2], subject[3]))
	case ok:
		log.Fatal(liveProxy(dir, address))
	case dir == "launch":
		if _, _, err := launch("sleep 300 & echo $!; echo $$; wait", os.Stdout, os.Stderr); err != nil {
			log.Fatal(err)
		}
		time.Sleep(time.Minute)
	default:
		os.Exit(m.Run())
	}
}

const livePrefix = "/k8s/clusters/local"

// liveProxy knows people by their certificates, speaks HTTP/2, and has the API below a prefix. It closes the open
// connections of a person whose certificate is revoked.
func liveProxy(dir, address string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	anonymous := rest.AnonymousClientConfig(config)
	anonymous.NextProtos = []string{"http/1.1"}
	transport, err := rest.TransportFor(anonymous)
	if err != nil {
		return err
	}
	revoked := func(who string) bool {
		_, err := os.Stat(filepath.Join(dir, "revoked-"+who))
		return err == nil
	}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			maps.DeleteFunc(r.Out.Header, func(name string, _ []string) bool {
				return !slices.Contains([]string{"Accept", "Content-Type", "User-Agent", "Audit-Id"}, name)
			})
			r.Out.Header.Set("Authorization", "Bearer "+config.BearerToken)
			r.Out.Header.Set("Impersonate-User", r.In.TLS.PeerCertificates[0].Subject.CommonName)
		},
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 || revoked(r.TLS.PeerCertificates[0].Subject.CommonName) {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		go func() {
			for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
				if revoked(r.TLS.PeerCertificates[0].Subject.CommonName) {
					cancel()
				}
			}
		}()
		http.StripPrefix(livePrefix, proxy).ServeHTTP(w, r.WithContext(ctx))
	})
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		return fmt.Errorf("ca.pem: %w", err)
	}
	listener := &http.Server{
		Addr:      address,
		Handler:   handler,
		TLSConfig: &tls.Config{ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	return listener.ListenAndServeTLS(filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key"))
}

// TestLive tries a right proxy as its owner would: TLS with HTTP/2, client certificates, a prefix, constrained
// impersonation, and a certificate that is revoked while a watch is open.
func TestLive(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	dir := t.TempDir()
	certificates(t, dir, "alice@corp", "bob@corp")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	made := producttest.Run(
		context.Background(),
		t,
		Product,
		"deputy",
		"--impersonation",
		constrained,
		"--pairs=100",
		"--requests-each=5",
		"--seed=4",
		"--proxy=https://"+address,
		"--api-prefix="+livePrefix+"/",
		"--proxy-ca",
		filepath.Join(dir, "ca.pem"),
		"--timeout=10s",
		"--proxy-command",
		fmt.Sprintf("%s=%s,%s exec %s", helperEnv, dir, address, os.Args[0]),
		"--revoke-command",
		"touch "+filepath.Join(dir, "revoked-alice@corp"),
		"--identity",
		liveIdentity(dir, "alice@corp"),
		"--identity",
		liveIdentity(dir, "bob@corp"),
	)
	said := fmt.Sprint(made.Report.Groups[0].Cases)
	if o := made.Report.Outcome; o.Result != verdicts.Passed {
		t.Errorf("%+v", o)
	}
	for _, want := range []string{"as the person", "not tried: people with certificates", "refused 0s after", "watch ended 0s after"} {
		if !strings.Contains(said, want) {
			t.Errorf("without %q:\n%s", want, said)
		}
	}
	if differences := verifyChanged(t, made, "", "", ""); len(differences) > 0 {
		t.Errorf("verify: %q", differences)
	}
	if strings.Contains(said, errNotOffered.Error()) {
		t.Error("no attack was tried over HTTP/2")
	}
}

func liveIdentity(dir, who string) string {
	return fmt.Sprintf("%s=client-cert:%s,%s", who, filepath.Join(dir, who+".pem"), filepath.Join(dir, who+".key"))
}

// certificates creates an authority, the certificate of a server and those of people.
func certificates(t *testing.T, dir string, people ...string) {
	t.Helper()
	validity := func(c *x509.Certificate, name string) *x509.Certificate {
		c.Subject, c.NotBefore, c.NotAfter = pkix.Name{CommonName: name}, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		return c
	}
	ca, caKey, err := clusters.Sign(validity(&x509.Certificate{BasicConstraintsValid: true}, "ca"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ca.pem", clusters.EncodeCertificate(ca))
	for _, name := range append(people, "server") {
		usage := x509.ExtKeyUsageClientAuth
		if name == "server" {
			usage = x509.ExtKeyUsageServerAuth
		}
		cert, key, err := clusters.Sign(
			validity(
				&x509.Certificate{
					KeyUsage:    x509.KeyUsageDigitalSignature,
					ExtKeyUsage: []x509.ExtKeyUsage{usage},
					IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
				},
				name,
			),
			ca,
			caKey,
		)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		write(name+".pem", clusters.EncodeCertificate(cert))
		write(name+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	}
}

// TestLaunchedDiesWithUs kills a process that has launched a command. The command has to end, and everything that it
// has started.
func TestLaunchedDiesWithUs(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=launch")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var pids []int
	for len(pids) < 2 && lines.Scan() {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil || !runs(pid) {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		pids = append(pids, pid)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for deadline := time.Now().Add(30 * time.Second); slices.ContainsFunc(pids, runs); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v: one of them lives on", pids)
		}
	}
	if len(pids) != 2 {
		t.Errorf("only %v were started", pids)
	}
}

// runs reports whether a process runs. One that has ended and that nobody has waited for still exists, but does not
// run.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		return !bytes.Contains(stat, []byte(") Z "))
	}
	return syscall.Kill(pid, 0) == nil
}
