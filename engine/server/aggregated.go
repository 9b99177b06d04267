package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

const (
	aggregatedGroup    = "conformance.authzconf.dev"
	aggregatedPath     = "/apis/" + aggregatedGroup + "/v1"
	aggregatedOpenAPI  = "/openapi/v3"
	aggregatedResource = "things"
	aggregatedService  = "authzconf-things" // the Service by which the API server finds this one
	aggregatedSpace    = metav1.NamespaceSystem
	aggregatedTimeout  = 30 * time.Second // how long the API server may take to serve the group
)

// aggregated is a small API server behind the cluster's, and what reached it. The zero value is not running.
type aggregated struct {
	starting sync.Mutex
	server   *recorder.Server

	mu       sync.Mutex
	requests []verdicts.BackendRequest
	admitted []scenarios.User
	probed   bool // the admission webhook was asked
}

// Aggregate starts the aggregated API server if it does not run yet, and returns when the cluster serves its API.
func (s *Server) Aggregate(ctx context.Context) error {
	a := &s.aggregated
	a.starting.Lock()
	defer a.starting.Unlock()
	if a.server != nil {
		return nil
	}
	client, err := kubernetes.NewForConfig(s.Admin())
	if err != nil {
		return err
	}
	// Whose certificates the API server identifies itself with is read as every aggregated API server does.
	config, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		return err
	}
	server, err := s.serveAggregated(ctx, []byte(config.Data["requestheader-client-ca-file"]))
	if err != nil {
		return err
	}
	if err := s.register(ctx, client, server); err != nil {
		return errors.Join(err, server.Close())
	}
	a.server = server
	return nil
}

// serveAggregated listens where the cluster's API server gets to.
func (s *Server) serveAggregated(ctx context.Context, ca []byte) (*recorder.Server, error) {
	const name = aggregatedService + "." + aggregatedSpace + ".svc"
	if s.network == nil {
		return ServeLoopback(ctx, &s.aggregated, ca, name)
	}
	listener, err := s.network.Listen(ctx)
	if err != nil {
		return nil, err
	}
	return serve(listener, &s.aggregated, ca, name)
}

func (s *Server) register(ctx context.Context, client kubernetes.Interface, server *recorder.Server) error {
	raw, err := fixtures.FS.ReadFile("aggregated.yaml")
	if err != nil {
		return err
	}
	values := []string{"$PORT", strconv.Itoa(server.Port), "$CA", base64.StdEncoding.EncodeToString(server.CA)}
	if s.network != nil {
		values = append(values, "$GATEWAY", s.network.Address().String())
	}
	var entries []struct {
		Path   string          `json:"path"`
		Nodes  *bool           `json:"nodes"`
		Object json.RawMessage `json:"object"`
	}
	if err := yaml.UnmarshalStrict([]byte(strings.NewReplacer(values...).Replace(string(raw))), &entries); err != nil {
		return err
	}
	api := client.CoreV1().RESTClient()
	for _, m := range entries {
		if m.Nodes != nil && *m.Nodes != s.can.Nodes {
			continue
		}
		err := api.Post().
			AbsPath(m.Path).
			SetHeader("Content-Type", "application/json").
			Body([]byte(m.Object)).
			Do(ctx).
			Error()
		if err != nil {
			return err
		}
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, aggregatedTimeout, true, func(ctx context.Context) (bool, error) {
		last = errors.Join(api.Get().AbsPath(aggregatedPath).Do(ctx).Error(), s.aggregated.probe(ctx, client))
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("not served after %s: %w", aggregatedTimeout, errors.Join(err, last))
	}
	return nil
}

func (a *aggregated) stop() error {
	a.starting.Lock()
	defer a.starting.Unlock()
	if a.server == nil {
		return nil
	}
	err := a.server.Close()
	a.server = nil
	return err
}

func (a *aggregated) take() ([]verdicts.BackendRequest, []scenarios.User) {
	a.mu.Lock()
	defer a.mu.Unlock()
	requests, admitted := a.requests, a.admitted
	a.requests, a.admitted = nil, nil
	return requests, admitted
}

// ServeHTTP answers discovery, which it does not record, its document of OpenAPI, and the one resource with an empty list.
func (a *aggregated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	switch {
	case r.URL.Path == admissionPath:
		answer = a.admit(r)
	case len(r.TLS.VerifiedChains) == 0: // only an admission webhook is called without a certificate
		http.Error(w, "no client certificate", http.StatusUnauthorized)
		return
	case r.URL.Path == aggregatedPath:
		answer = metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: aggregatedGroup + "/v1",
			APIResources: []metav1.APIResource{
				{Name: aggregatedResource, SingularName: "thing", Kind: "Thing", Namespaced: true, Verbs: metav1.Verbs{"get", "list"}},
			},
		}
	case r.URL.Path == aggregatedOpenAPI: // by itself, the cluster's API server asks which documents there are
		at := map[string]string{"serverRelativeURL": aggregatedOpenAPI + aggregatedPath}
		answer = map[string]any{"paths": map[string]any{strings.TrimPrefix(aggregatedPath, "/"): at}}
	case r.URL.Path == aggregatedOpenAPI+aggregatedPath:
		a.record(r)
		answer = map[string]any{
			"openapi": "3.0.0",
			"info":    map[string]any{"title": aggregatedResource, "version": "v1"},
			"paths":   map[string]any{},
		}
	case strings.HasPrefix(r.URL.Path, aggregatedPath+"/namespaces/"):
		a.record(r)
		answer = map[string]any{"kind": "ThingList", "apiVersion": aggregatedGroup + "/v1", "metadata": map[string]any{}, "items": []any{}}
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (a *aggregated) record(r *http.Request) {
	b := verdicts.BackendRequest{Method: r.Method, URL: r.URL.RequestURI(), User: RemoteUser(r.Header)}
	for name, values := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			if b.Impersonation == nil {
				b.Impersonation = map[string][]string{}
			}
			b.Impersonation[name] = values
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, b)
}

// RemoteUser is whom the headers name by which a proxy tells an API server, or that an aggregated one, who is asking.
func RemoteUser(h http.Header) scenarios.User {
	u := scenarios.User{Name: h.Get("X-Remote-User"), UID: h.Get("X-Remote-Uid"), Groups: h.Values("X-Remote-Group")}
	for name, values := range h {
		key, isExtra := strings.CutPrefix(name, "X-Remote-Extra-")
		if !isExtra {
			continue
		}
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[strings.ToLower(key)] = values
	}
	return u
}

// The server is an admission webhook too, and one that could change what it sees: which of them is asked about a ConfigMap
// is what its label says. It allows it, and keeps whom it was told of.
const (
	admissionPath  = "/admission"
	admissionLabel = aggregatedGroup + "/admission"
)

// probe fails until the API server asks both webhooks. Whom they are told of is nobody's of a scenario.
func (a *aggregated) probe(ctx context.Context, client kubernetes.Interface) error {
	for _, which := range []string{"true", "mutating"} {
		_, err := client.CoreV1().ConfigMaps(aggregatedSpace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: aggregatedService, Labels: map[string]string{admissionLabel: which}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		a.mu.Lock()
		isProbed := a.probed
		a.probed = false
		a.mu.Unlock()
		if !isProbed {
			return fmt.Errorf("the admission webhook for the label %q is not asked", which)
		}
	}
	return nil
}

func (a *aggregated) admit(r *http.Request) any {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		return metav1.Status{Status: metav1.StatusFailure, Message: "not an admission review"}
	}
	u := review.Request.UserInfo
	a.mu.Lock()
	defer a.mu.Unlock()
	if review.Request.Name == aggregatedService {
		a.probed = true
	} else {
		a.admitted = append(a.admitted, scenarios.UserOf(u.Username, u.UID, u.Groups, u.Extra))
	}
	return admissionv1.AdmissionReview{
		TypeMeta: review.TypeMeta,
		Response: &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true},
	}
}

// ServeLoopback starts a server on a free port, with a certificate of its own. It speaks HTTP/1.1 only: with
// HTTP/2 no connection can be upgraded. clientCA, if given, is the authority in PEM that clients may have a
// certificate of, which the handler can ask for; names are further ones to be reached under.
func ServeLoopback(ctx context.Context, handler http.Handler, clientCA []byte, names ...string) (*recorder.Server, error) {
	listener, err := recorder.Listen(ctx)
	if err != nil {
		return nil, err
	}
	return serve(listener, handler, clientCA, names...)
}

// serve is ServeLoopback on any listener, which is closed after an error, too.
func serve(listener net.Listener, handler http.Handler, clientCA []byte, names ...string) (*recorder.Server, error) {
	end := time.Now().Add(recorder.Lifetime)
	pki, err := recorder.NewPKI(end, end, names...)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	config := pki.ServerConfig()
	config.ClientAuth, config.ClientCAs, config.NextProtos = tls.NoClientCert, x509.NewCertPool(), []string{"http/1.1"}
	if clientCA != nil {
		config.ClientAuth = tls.VerifyClientCertIfGiven
		if !config.ClientCAs.AppendCertsFromPEM(clientCA) {
			return nil, errors.Join(errors.New("the client CA holds no certificate"), listener.Close())
		}
	}
	return recorder.Serve(listener, handler, pki, config), nil
}
