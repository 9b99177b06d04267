package local

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAPIServerArgs(t *testing.T) {
	const dir = "/run/dir"
	plain := apiServerArgs(Options{}, 1234, dir)
	for _, want := range []string{"--secure-port=1234", "--authorization-mode=Node,RBAC", "--bind-address=127.0.0.1"} {
		if !slices.Contains(plain, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, test := range []struct {
		name     string
		o        Options
		has, not []string
	}{
		{"emulation", Options{EmulatedVersion: "1.35"}, []string{"--emulated-version=1.35"}, nil},
		{
			"gates, in order", Options{FeatureGates: map[string]bool{"B": false, "A": true, "C": true}},
			[]string{"--feature-gates=A=true,B=false,C=true"}, nil,
		},
		{
			"authorization", Options{AuthorizationConfig: []byte{}},
			[]string{"--authorization-config=authorization.yaml"}, []string{"--authorization-mode=Node,RBAC"},
		},
		{
			"audit", Options{AuditPolicy: []byte{}},
			[]string{"--audit-policy-file=audit-policy.yaml", "--audit-log-path=-", "--audit-log-mode=blocking"}, nil,
		},
		{"own, expanded", Options{KubeAPIServerArgs: []string{"--x=${RUN_DIR}/y"}}, []string{"--x=/run/dir/y"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := apiServerArgs(test.o, 1234, dir)
			for _, want := range test.has {
				if !slices.Contains(got, want) {
					t.Errorf("%s is missing from %v", want, got)
				}
				if slices.Contains(plain, want) {
					t.Errorf("%s is there unasked", want)
				}
			}
			for _, unwanted := range test.not {
				if slices.Contains(got, unwanted) {
					t.Errorf("%s is there", unwanted)
				}
			}
		})
	}
	own := apiServerArgs(Options{KubeAPIServerArgs: []string{"--last=${RUN_DIR}"}, AuditPolicy: []byte{}}, 1, dir)
	if own[len(own)-1] != "--last=/run/dir" {
		t.Error("the caller's arguments do not come last")
	}
}

func TestCompleteOptions(t *testing.T) {
	gates := map[string]bool{"A": true}
	o, err := Options{FeatureGates: gates}.complete()
	if err != nil {
		t.Fatal(err)
	}
	if o.Release != releases[len(releases)-1] || o.ReadyTimeout != defaultReadyTimeout || o.Binaries == nil {
		t.Errorf("defaults: %+v", o)
	}
	o.FeatureGates["A"] = false
	if !gates["A"] {
		t.Error("the caller's map was changed")
	}
	for _, gate := range []string{"", "A=true", "A,B", "A B", "kube:A"} {
		_, err := Options{FeatureGates: map[string]bool{gate: true}}.complete()
		wantUsageError(t, err, "feature gate")
	}
}

func TestFindReason(t *testing.T) {
	for _, test := range []struct{ name, log, want string }{
		{"none", "I1121 02:17:15.817874     549 x.go:1] fine", ""},
		{"nothing", "", ""},
		{"klog", `E1121 02:17:15.817874     549 run.go:72] "command failed" err="unrecognized feature gate: Foo"`, "unrecognized feature gate: Foo"},
		{"klog, quotes", `E1121 02:17:15.8 1 run.go:72] "command failed" err="parsing \"maybe\": invalid"`, `parsing "maybe": invalid`},
		{"klog, long", "E1 \"command failed\" err=<\n\tfailed to load: Object\n\t'\n >\nI1 later", "failed to load: Object '"},
		{"cobra", "Error: unknown flag: --x\nmore", "unknown flag: --x"},
		{"fatal", "F1121 02:17:15.817874     549 x.go:1] cannot go on", "cannot go on"},
		{"panic", "I1 a\npanic: runtime error: x\n\ngoroutine 1 [running]:", "panic: runtime error: x"},
		{"runtime", "fatal error: out of memory", "fatal error: out of memory"},
		{"etcd", `{"level":"fatal","ts":"T","caller":"etcd.go:1","msg":"discovery failed","error":"mkdir /x: \"no\"","stacktrace":"s"}`, `discovery failed: mkdir /x: "no"`},
		{"etcd, no error", `{"level":"panic","msg":"tocommit out of range"}`, "tocommit out of range"},
		{"the last", "Error: first\nError: second", "second"},
	} {
		if got := findReason(lastLines([]byte(test.log), 200, true)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestReadTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if got := readTail(path, 0, 5); got != nil {
		t.Errorf("no file: %q", got)
	}
	long := strings.Repeat("é", maxLineBytes)
	data := "old\n" + "first\n\n  \nsecond\r\n" + long + "\nlast, no newline"
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	got := readTail(path, 4, 9)
	if len(got) != 4 || got[0] != "first" || got[1] != "second" || got[3] != "last, no newline" {
		t.Errorf("%q", got)
	}
	if !strings.HasSuffix(got[2], "é…") || len(got[2]) > maxLineBytes+len("…") {
		t.Errorf("the long line is %d bytes", len(got[2]))
	}
	if got := readTail(path, 0, 1); len(got) != 1 || got[0] != "last, no newline" {
		t.Errorf("%q", got)
	}
	huge := strings.Repeat("x\n", maxTailBytes)
	if err := os.WriteFile(path, []byte(huge), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readTail(path, 0, 3); !slices.Equal(got, []string{"x", "x", "x"}) {
		t.Errorf("%q", got)
	}
}

func TestLineWriter(t *testing.T) {
	var lines []string
	sink := writerFunc(func(p []byte) (int, error) { lines = append(lines, string(p)); return len(p), nil })
	w := &lineWriter{to: sink}
	for _, piece := range []string{"one\ntw", "o\n", "", "th", "r", "ee\nfour\nfive\nto", "rn"} {
		if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Errorf("Write(%q) = %d, %v", piece, n, err)
		}
	}
	if want := []string{"one\n", "two\n", "three\n", "four\n", "five\n"}; !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
	calls := 0
	w = &lineWriter{to: writerFunc(func([]byte) (int, error) { calls++; return 0, errors.New("full") })}
	if _, err := w.Write([]byte("a\nb\n")); err != nil || w.failure() == nil || calls != 1 {
		t.Errorf("%v, %v, %d calls", err, w.failure(), calls)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestPKI(t *testing.T) {
	now := time.Now()
	keys, err := newPKI(now)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		pair     keyPair
		ca       []byte
		usage    x509.ExtKeyUsage
		name     string
		accepted bool
	}{
		"serving":                 {keys.serving, keys.servingCA, x509.ExtKeyUsageServerAuth, "kubernetes.default.svc", true},
		"serving, address":        {keys.serving, keys.servingCA, x509.ExtKeyUsageServerAuth, "127.0.0.1", true},
		"serving, other name":     {keys.serving, keys.servingCA, x509.ExtKeyUsageServerAuth, "example.com", false},
		"serving as a client":     {keys.serving, keys.servingCA, x509.ExtKeyUsageClientAuth, "", false},
		"admin":                   {keys.admin, keys.clientCA, x509.ExtKeyUsageClientAuth, "", true},
		"admin as a front proxy":  {keys.admin, keys.frontProxyCA, x509.ExtKeyUsageClientAuth, "", false},
		"front proxy":             {keys.frontProxy, keys.frontProxyCA, x509.ExtKeyUsageClientAuth, "", true},
		"front proxy as an admin": {keys.frontProxy, keys.clientCA, x509.ExtKeyUsageClientAuth, "", false},
		"front proxy as a server": {keys.frontProxy, keys.frontProxyCA, x509.ExtKeyUsageServerAuth, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tls.X509KeyPair(test.pair.cert, test.pair.key); err != nil {
				t.Fatal(err)
			}
			block, _ := pem.Decode(test.pair.cert)
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(test.ca)
			_, err = cert.Verify(x509.VerifyOptions{
				Roots: roots, KeyUsages: []x509.ExtKeyUsage{test.usage}, DNSName: test.name, CurrentTime: now,
			})
			if (err == nil) != test.accepted {
				t.Errorf("verified: %v, want accepted %t", err, test.accepted)
			}
			_, err = cert.Verify(x509.VerifyOptions{
				Roots: roots, KeyUsages: []x509.ExtKeyUsage{test.usage}, CurrentTime: now.Add(keyLifetime + time.Hour),
			})
			if err == nil {
				t.Error("it never expires")
			}
		})
	}
	private, _ := pem.Decode(keys.serviceAccountKey)
	key, err := x509.ParseECPrivateKey(private.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(keys.serviceAccountPub)
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil || !public.(*ecdsa.PublicKey).Equal(key.Public()) {
		t.Errorf("the service account keys do not belong together: %v", err)
	}
	other, err := newPKI(now)
	if err != nil || bytes.Equal(other.admin.key, keys.admin.key) {
		t.Errorf("keys are not new each time: %v", err)
	}
}

func TestFreePortsAreNeverTheSame(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d was handed out twice", port)
		}
		seen[port] = true
	}
}

func TestErrors(t *testing.T) {
	err := folderError("cache folder", "/c", CacheVariable, &fs.PathError{Op: "mkdir", Path: "/c/x", Err: syscall.ENOSPC})
	wantUsageError(t, err, "/c", "no space left on device", "free some space", CacheVariable)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Error("the cause is lost")
	}
	wantUsageError(t, folderError("cache folder", "/c", CacheVariable, syscall.EACCES), "/c", "permission denied", "make it writable")
	failed := &ProcessError{Process: "etcd", PID: 7, State: "ended", Reason: "why", LogTail: []string{"a", "b"}}
	if want := "etcd (pid 7): ended: why\nlast 2 log lines:\n  a\n  b"; failed.Error() != want {
		t.Errorf("%q, want %q", failed.Error(), want)
	}
	for _, o := range []Options{{}, {Port: 1}} {
		if err := explain(errors.New("other"), o); err == nil || err.Error() != "other" {
			t.Errorf("explain changed another error: %v", err)
		}
	}
}
