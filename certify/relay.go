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

// relay passes connections on between an API server and a webhook, and can be cut: so the harness takes a webhook away
// that it does not run. It sees nothing of what is said, for TLS goes through it.
type relay struct {
	*balancer.Balancer
	to string
}

// relayed starts a relay to the webhook, and renders the kubeconfig that leads an API server through it. It holds
// everything that the webhook's own names files for.
func (w *Webhook) relayed() (r relay, kubeconfig []byte, err error) {
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
	r.to = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
	if r.Balancer, err = balancer.Start(r.to); err != nil {
		return r, nil, err
	}
	config.ServerName = cmp.Or(config.ServerName, u.Hostname())
	u.Host = r.Addr()
	config.Host = u.String()
	kubeconfig, err = clusters.Kubeconfig("authorizer", config)
	return r, kubeconfig, err
}
