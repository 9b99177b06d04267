// Package reference is an authorizer webhook of ours that has the policy of certification and gets everything right.
//
// Other authorizers are compared with it. It also tests the harness: a finding about it is a false alarm.
package reference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/scenarios"
)

// Server is a running webhook on a free port of the loopback interface.
type Server struct {
	*recorder.Server
	pki *recorder.PKI
}

// Start serves a handler by TLS until Close, for clients that have the certificate in Kubeconfig. If pki is nil, a new
// one is made.
func Start(h http.Handler, pki *recorder.PKI) (*Server, error) {
	if pki == nil {
		end := time.Now().Add(24 * time.Hour)
		var err error
		if pki, err = recorder.NewPKI(end, end); err != nil {
			return nil, err
		}
	}
	l, err := recorder.Listen(context.Background())
	if err != nil {
		return nil, err
	}
	return &Server{Server: recorder.Serve(l, h, pki, pki.ServerConfig()), pki: pki}, nil
}

// ServeFor serves a handler until stop is called, and writes a kubeconfig for its clients to path. The file contains a
// client key: it is always created anew, only its owner can read it, and an existing link is not followed.
func ServeFor(h http.Handler, path string, kubeconfig func(*Server) ([]byte, error)) (stop func() error, err error) {
	s, err := Start(h, nil)
	if err != nil {
		return nil, err
	}
	raw, err := kubeconfig(s)
	if err == nil {
		_ = os.Remove(path)
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s.Close, nil
}

// Kubeconfig returns the webhook configuration for an API server. It contains a client key, so nobody else may read its
// file.
func (s *Server) Kubeconfig() ([]byte, error) {
	return s.pki.Kubeconfig("authorizer", s.URL+"/authorize")
}

// File is a file that may change, such as one that a policy hook overwrites.
type File[T any] struct {
	path  string
	parse func(path string, raw []byte) (T, error)

	mu   sync.Mutex
	when time.Time
	size int64
}

// Follow reads a file for the first time.
func Follow[T any](path string, parse func(path string, raw []byte) (T, error)) (*File[T], T, error) {
	f := &File[T]{path: path, parse: parse}
	first, _, err := f.Changed()
	return f, first, err
}

// Changed reads the file if it has changed since it was last read without an error.
func (f *File[T]) Changed() (value T, changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	isSame := err == nil && info.ModTime().Equal(f.when) && info.Size() == f.size
	if err != nil || isSame {
		return value, false, err
	}
	raw, err := filing.Input(f.path)
	if err != nil {
		return value, false, err
	}
	if value, err = f.parse(f.path, raw); err == nil {
		f.when, f.size = info.ModTime(), info.Size()
	}
	return value, err == nil, err
}

const (
	// V1 and V1beta1 are the versions of SubjectAccessReview.
	V1      = "authorization.k8s.io/v1"
	V1beta1 = "authorization.k8s.io/v1beta1"
	// Kind is the only kind that is answered.
	Kind = "SubjectAccessReview"

	maxBody = 3 << 20 // the largest body that an API server itself accepts
)

// Decider decides about a review.
type Decider func(authorizationv1.SubjectAccessReviewSpec) scenarios.Decision

// Handler answers reviews with the decisions of a Decider.
func Handler(decide Decider) http.Handler {
	return Posted(func(body []byte) ([]byte, error) {
		version, spec, err := Decode(body)
		if err != nil {
			return nil, err
		}
		return Answer(version, decide(spec)), nil
	})
}

// Posted returns a handler of JSON bodies that are posted. An error of answer is about the body, and is answered with
// 400.
func Posted(answer func(body []byte) ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "reviews are posted", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
		if err != nil {
			http.Error(w, "the body is too large, or ends early", http.StatusBadRequest)
			return
		}
		out, err := answer(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out) // an error means that the client has gone away
	})
}

// Answer returns a review with a decision. It does not repeat the spec, because an API server reads only the status.
func Answer(version string, d scenarios.Decision) []byte {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{},"spec":{},"status":{"allowed":%t,"denied":%t}}`+"\n",
		version, Kind, d == scenarios.Allow, d == scenarios.Deny)
}

// Decode reads a review of either version as v1. It ignores fields that it does not know, because a newer API server
// may send them.
func Decode(body []byte) (version string, spec authorizationv1.SubjectAccessReviewSpec, err error) {
	var head struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Spec       json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return "", spec, errors.New("the body is not a JSON object of a review")
	}
	switch {
	case head.Kind != Kind:
		return "", spec, fmt.Errorf("the kind is not %s", Kind)
	case len(head.Spec) == 0:
		return "", spec, errors.New("the review has no spec")
	case head.APIVersion == V1:
		err = json.Unmarshal(head.Spec, &spec)
	case head.APIVersion == V1beta1:
		// v1beta1 is the same, except that groups are called group.
		old := struct {
			*authorizationv1.SubjectAccessReviewSpec
			Group []string `json:"group"`
		}{SubjectAccessReviewSpec: &spec}
		err = json.Unmarshal(head.Spec, &old)
		spec.Groups = old.Group
	default:
		return "", spec, fmt.Errorf("the apiVersion is neither %s nor %s", V1, V1beta1)
	}
	if err != nil {
		return "", spec, errors.New("the spec of the review cannot be read")
	}
	return head.APIVersion, spec, check(spec)
}

// check returns what is wrong with the spec of a review.
func check(s authorizationv1.SubjectAccessReviewSpec) error {
	switch {
	case s.User == "" && len(s.Groups) == 0:
		return errors.New("the spec has neither user nor groups")
	case (s.ResourceAttributes == nil) == (s.NonResourceAttributes == nil):
		return errors.New("the spec must have one of resourceAttributes and nonResourceAttributes")
	}
	return nil
}
