package deputy

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"time"
)

// endpoint is who acts for people, and where they are known by which credentials.
type endpoint struct {
	url       *url.URL // below which the Kubernetes API is
	tls       *tls.Config
	people    []*Identity // The first two are me and the other.
	namespace string
	timeout   time.Duration // how long a plain request may take to be answered
	log       auditLog
	plane     *plane // the control plane behind it; nil if that is somebody else's
	// cluster is the name of the cluster behind the URL, and other the second one; nil if there is one cluster.
	cluster string
	other   *otherCluster
	// close ends whoever acts.
	close func() error
}

func (ep *endpoint) client(who *Identity) *http.Client {
	config := ep.tls.Clone()
	if who.cert != nil {
		config.Certificates = []tls.Certificate{*who.cert}
	}
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, ResponseHeaderTimeout: ep.timeout, MaxIdleConnsPerHost: 100},
		Timeout:   2 * ep.timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// get sends a GET request as a person.
func (ep *endpoint) get(ctx context.Context, path string, who *Identity) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ep.url.String()+path, nil)
	if err != nil {
		return nil, err
	}
	who.addTo(req.Header)
	req.Header.Set("Accept", "application/json")
	return ep.client(who).Do(req)
}
