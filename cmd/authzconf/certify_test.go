package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/scenarios"
)

// gigabyte is written in parts.
const gigabyte = 1 << 30

// broken are webhooks that answer wrongly at the level of HTTP.
var broken = map[string]http.HandlerFunc{
	"html":      func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>login</html>") },
	"redirects": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
	"hangs": func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	},
	"closes": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"other-kind": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Pod","status":{"allowed":true}}`)
	},
	"gigabytes": func(w http.ResponseWriter, _ *http.Request) {
		block := bytes.Repeat([]byte(" "), 1<<20)
		for range 4 * gigabyte / len(block) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	},
	"allows-unknown-verbs": func(w http.ResponseWriter, r *http.Request) {
		decide := func(s authorizationv1.SubjectAccessReviewSpec) scenarios.Decision {
			isUnknown := s.ResourceAttributes != nil && strings.Contains(s.ResourceAttributes.Verb, "-")
			if isUnknown {
				return scenarios.Allow
			}
			return scenarios.NoOpinion
		}
		reference.Handler(decide).ServeHTTP(w, r)
	},
	"denies": func(w http.ResponseWriter, r *http.Request) {
		reference.Handler(func(authorizationv1.SubjectAccessReviewSpec) scenarios.Decision { return scenarios.Deny }).ServeHTTP(w, r)
	},
	"works": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(reference.Answer(reference.V1, "noOpinion"))
	},
}

// misbehaves serves a webhook that is broken in one way until the script ends,
// and writes the kubeconfig for it.
func misbehaves(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 2, "misbehaves HOW KUBECONFIG")
	good, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	serving, client := good, good
	switch args[0] {
	case "expired-server":
		serving = past
	case "expired-client":
		client = past
	}
	pki, err := recorder.NewPKI(serving, client)
	ts.Check(err)
	if args[0] == "plain-http" || args[0] == "nobody" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		ts.Check(err)
		if ts.Defer(func() { _ = l.Close() }); args[0] == "nobody" {
			_ = l.Close()
		}
		go func() { _ = http.Serve(l, http.NotFoundHandler()) }()
		writeKubeconfig(ts, pki, "https://"+l.Addr().String(), args[1])
		return
	}
	h := broken[args[0]]
	if h == nil {
		h = broken["works"]
	}
	server, err := reference.Start(h, pki)
	ts.Check(err)
	ts.Defer(func() { _ = server.Close() })
	if args[0] == "another-ca" {
		pki, err = recorder.NewPKI(good, good)
		ts.Check(err)
	}
	writeKubeconfig(ts, pki, server.URL+"/authorize", args[1])
}

func writeKubeconfig(ts *testscript.TestScript, pki *recorder.PKI, url, path string) {
	raw, err := pki.Kubeconfig("authorizer", url)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(path), raw, 0o600))
}

// frugal checks how much memory the last command that ended had.
func frugal(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 1, "frugal MEBIBYTES")
	limit, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	status := ts.MkAbs(ts.Getenv(peakVariable))
	data, err := os.ReadFile(status)
	ts.Check(err)
	ts.Check(os.Remove(status)) // so that it is not taken for that of the next command
	_, peak, _ := strings.Cut(string(data), "VmHWM:")
	var got int64 // KiB
	_, err = fmt.Sscan(peak, &got)
	ts.Check(err)
	if got >>= 10; got > limit {
		ts.Fatalf("it had %d MiB", got)
	}
}
