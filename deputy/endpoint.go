package deputy

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"time"
)

// endpoint is a program that acts for people, with the people and the credentials by which it knows them.
type endpoint struct {
	url       *url.URL // below which the Kubernetes API is
	tls       *tls.Config
	people    []*Identity // the first two are me and the other
	namespace string
	timeout   time.Duration // how long the answer to a plain request may take
	log       auditLog
	plane     *plane // the control plane behind it; nil if it is not ours
	// cluster is the name of the cluster behind the URL. other is the second cluster, or nil if there is one cluster.
	cluster string
	other   *secondCluster
	// close stops the program.
	close func() error
}

// client returns an HTTP client that presents a person's client certificate, if the person has one.
func (ep *endpoint) client(person *Identity) *http.Client {
	config := ep.tls.Clone()
	if person.cert != nil {
		config.Certificates = []tls.Certificate{*person.cert}
	}
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:       config,
			ForceAttemptHTTP2:     true,
			ResponseHeaderTimeout: ep.timeout,
			MaxIdleConnsPerHost:   100,
		},
		Timeout:       2 * ep.timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// get sends a GET request as a person.
func (ep *endpoint) get(ctx context.Context, path string, person *Identity) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ep.url.String()+path, nil)
	if err != nil {
		return nil, err
	}
	person.addTo(req.Header)
	req.Header.Set("Accept", "application/json")
	return ep.client(person).Do(req)
}
