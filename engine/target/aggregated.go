package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/verdicts"
)

const (
	aggregatedGroup    = "conformance.authzconf.dev"
	aggregatedPath     = "/apis/" + aggregatedGroup + "/v1"
	aggregatedResource = "things"
	// aggregatedService is a Service that names the loopback interface: without
	// kube-proxy nothing routes to the address of any other kind.
	aggregatedService = "authzconf-things"
	aggregatedSpace   = metav1.NamespaceSystem
	// aggregatedTimeout is how long the API server may take to serve the group.
	aggregatedTimeout = 30 * time.Second
)

// aggregated is a small API server behind the cluster's, and what reached it. The zero value is not running.
type aggregated struct {
	starting sync.Mutex
	server   *Loopback

	mu   sync.Mutex
	seen []verdicts.BackendRequest
}

// Aggregate starts the aggregated API server if it does not run yet, and returns when the cluster serves its API.
func (t *Target) Aggregate(ctx context.Context) error {
	a := &t.aggregated
	a.starting.Lock()
	defer a.starting.Unlock()
	if a.server != nil {
		return nil
	}
	client, err := kubernetes.NewForConfig(t.Admin())
	if err != nil {
		return err
	}
	ca, err := frontProxyCA(ctx, client)
	if err != nil {
		return err
	}
	server, err := t.serveAggregated(ctx, ca)
	if err != nil {
		return err
	}
	if err := t.register(ctx, client, server); err != nil {
		return errors.Join(err, server.Close())
	}
	a.server = server
	return nil
}

// serveAggregated listens where the cluster's API server gets to.
func (t *Target) serveAggregated(ctx context.Context, ca []byte) (*Loopback, error) {
	const name = aggregatedService + "." + aggregatedSpace + ".svc"
	if t.network == nil {
		return ServeLoopback(ctx, &t.aggregated, ca, name)
	}
	listener, err := t.network.Listen(ctx)
	if err != nil {
		return nil, err
	}
	server, err := serve(listener, &t.aggregated, ca, name)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return server, nil
}

// aggregatedRoute makes the Service by which the API server finds the aggregated
// one. With nodes it has an address that kube-proxy routes to this machine.
func (t *Target) aggregatedRoute(ctx context.Context, client kubernetes.Interface, server *Loopback) error {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: aggregatedService}}
	port := int32(server.Port)
	if t.network == nil {
		service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: loopbackName}
	} else {
		service.Spec = corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port}}}
	}
	_, err := client.CoreV1().Services(aggregatedSpace).Create(ctx, service, metav1.CreateOptions{})
	if err != nil || t.network == nil {
		return err
	}
	protocol, ready := corev1.ProtocolTCP, true
	_, err = client.DiscoveryV1().EndpointSlices(aggregatedSpace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: aggregatedService, Labels: map[string]string{discoveryv1.LabelServiceName: aggregatedService}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{t.network.Gateway.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}, metav1.CreateOptions{})
	return err
}

// frontProxyCA reads whose certificates the API server identifies itself with,
// as every aggregated API server does.
func frontProxyCA(ctx context.Context, client kubernetes.Interface) ([]byte, error) {
	const name, key = "extension-apiserver-authentication", "requestheader-client-ca-file"
	config, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return []byte(config.Data[key]), nil
}

// register makes the API known, and waits until it is served.
func (t *Target) register(ctx context.Context, client kubernetes.Interface, server *Loopback) error {
	if err := t.aggregatedRoute(ctx, client, server); err != nil {
		return err
	}
	service, err := json.Marshal(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1." + aggregatedGroup},
		"spec": map[string]any{
			"group": aggregatedGroup, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10, "caBundle": server.CA,
			"service": map[string]any{"namespace": aggregatedSpace, "name": aggregatedService, "port": server.Port},
		},
	})
	if err != nil {
		return err
	}
	api := client.CoreV1().RESTClient()
	if err := api.Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").Body(service).Do(ctx).Error(); err != nil {
		return err
	}
	var last error
	if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, aggregatedTimeout, true, func(ctx context.Context) (bool, error) {
		last = api.Get().AbsPath(aggregatedPath).Do(ctx).Error()
		return last == nil, nil
	}); err != nil {
		return fmt.Errorf("not served after %s: %w", aggregatedTimeout, errors.Join(err, last))
	}
	return nil
}

// stop ends the server.
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

// take returns what was seen since the last call, and forgets it.
func (a *aggregated) take() []verdicts.BackendRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := a.seen
	a.seen = nil
	return seen
}

// ServeHTTP answers discovery, and the one resource with an empty list. What the
// API server asks for itself (discovery, OpenAPI) is not recorded.
func (a *aggregated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	switch {
	case r.URL.Path == aggregatedPath:
		answer = metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: aggregatedGroup + "/v1",
			APIResources: []metav1.APIResource{{Name: aggregatedResource, SingularName: "thing", Kind: "Thing", Namespaced: true, Verbs: metav1.Verbs{"get", "list"}}},
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

// record keeps who the API server says is asking.
func (a *aggregated) record(r *http.Request) {
	const extraPrefix = "X-Remote-Extra-"
	b := verdicts.BackendRequest{Method: r.Method, URL: r.URL.RequestURI()}
	b.User.Name, b.User.UID, b.User.Groups = r.Header.Get("X-Remote-User"), r.Header.Get("X-Remote-Uid"), r.Header.Values("X-Remote-Group")
	for name, values := range r.Header {
		key, isExtra := strings.CutPrefix(name, extraPrefix)
		switch {
		case isExtra:
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			if b.User.Extra == nil {
				b.User.Extra = map[string][]string{}
			}
			b.User.Extra[strings.ToLower(key)] = values
		case strings.HasPrefix(name, "Impersonate-"):
			if b.Impersonation == nil {
				b.Impersonation = map[string][]string{}
			}
			b.Impersonation[name] = values
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, b)
}
