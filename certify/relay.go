package certify

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"os"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/balancer"
)

// relay passes on connections between an API server and a webhook, and can be cut. By this the harness makes a webhook
// unreachable that it does not run. It does not see what is said, because TLS passes through it.
type relay struct {
	*balancer.Balancer
	target string
}

// startRelay starts a relay to the webhook, and returns a kubeconfig that leads an API server through the relay. The
// kubeconfig contains everything that the webhook's own names as files.
func (w *Webhook) startRelay() (r relay, kubeconfig []byte, err error) {
	u, err := url.Parse(w.url)
	if err != nil {
		return r, nil, err
	}
	if w.config.Proxy != nil {
		return r, nil, errors.New("the webhook's kubeconfig has a proxy-url: in a cluster it is reached directly only")
	}
	config := rest.CopyConfig(w.config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return r, nil, err
	}
	if config.BearerToken == "" && config.BearerTokenFile != "" {
		token, err := os.ReadFile(config.BearerTokenFile)
		if err != nil {
			return r, nil, err
		}
		config.BearerToken = string(token)
	}
	r.target = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
	if r.Balancer, err = balancer.Start(r.target); err != nil {
		return r, nil, err
	}
	config.ServerName = cmp.Or(config.ServerName, u.Hostname())
	u.Host = r.Addr()
	config.Host = u.String()
	kubeconfig, err = clusters.Kubeconfig("authorizer", config)
	return r, kubeconfig, err
}
