package certify

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/record"
)

// Webhook says how an authorizer is reached.
type Webhook struct {
	url          string // as in the kubeconfig
	config       *rest.Config
	tls          *tls.Config
	clientEnd    time.Time     // when the client certificate ends; zero if there is none
	Timeout      time.Duration // how long an answer may take; ten seconds if it is left out
	certificates *certificates // the digests of the certificates that were seen
}

// certificates are the digests of servers' certificates, in the order in which they were first seen.
type certificates struct {
	mu      sync.Mutex
	digests []string
}

// record records the certificate that a server shows. It never refuses one.
func (c *certificates) record(s tls.ConnectionState) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(s.PeerCertificates) > 0 {
		if d := record.Digest(s.PeerCertificates[0].Raw); !slices.Contains(c.digests, d) && len(c.digests) < maxCertificates {
			c.digests = append(c.digests, d)
		}
	}
	return nil
}

// maxCertificates is more than a server shows in an hour.
const maxCertificates = 100

// Certificates returns the SHA-256 digests of the certificates that the webhook has shown.
func (w *Webhook) Certificates() []string {
	w.certificates.mu.Lock()
	defer w.certificates.mu.Unlock()
	return slices.Clone(w.certificates.digests)
}

// LoadWebhook reads the kubeconfig of a webhook, as an API server is given one, and uses one of its contexts; "" is the
// current one. Files that it names are found relative to it, as kubectl and API servers find them.
func LoadWebhook(path, context string) (*Webhook, error) {
	raw, err := filing.Input(path)
	if err != nil {
		return nil, err
	}
	w, err := parseWebhookAt(raw, path, context)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return w, nil
}

// ParseWebhook does the same as LoadWebhook for a text that names no files.
func ParseWebhook(raw []byte, context string) (*Webhook, error) {
	return parseWebhookAt(raw, "", context)
}

// parseWebhookAt reads a kubeconfig whose files are found relative to path.
func parseWebhookAt(raw []byte, path, context string) (_ *Webhook, err error) {
	config, err := loadKubeconfig(raw, path)
	if err != nil {
		return nil, err
	}
	if err := chooseContext(config, context); err != nil {
		return nil, err
	}
	rc, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("it cannot be used: %s", firstLine(err))
	}
	u, err := url.Parse(rc.Host)
	switch {
	case err != nil || u.Host == "":
		return nil, errors.New("its server is not a URL")
	case u.Scheme != "https":
		return nil, fmt.Errorf("its server is reached by %s, and reviews go by https only", u.Scheme)
	}
	w := &Webhook{url: rc.Host, config: rc, Timeout: Timeout, certificates: &certificates{}}
	if w.tls, err = rest.TLSConfigFor(rc); err != nil {
		return nil, fmt.Errorf("its certificates cannot be used: %s", firstLine(err))
	}
	w.tls = cmp.Or(w.tls, &tls.Config{MinVersion: tls.VersionTLS12})
	if block, _ := pem.Decode(rc.CertData); block != nil {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			w.clientEnd = c.NotAfter
		}
	}
	return w, nil
}

// loadKubeconfig reads a kubeconfig. The files that it names are found relative to path.
func loadKubeconfig(raw []byte, path string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.Load(raw)
	if err != nil {
		return nil, errors.New("it cannot be read as a kubeconfig")
	}
	for _, c := range config.Clusters {
		c.LocationOfOrigin = path
	}
	for _, u := range config.AuthInfos {
		u.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, fmt.Errorf("the files that it names: %w", err)
	}
	return config, nil
}

// chooseContext makes a context the current one, unless it is "". It returns an error if the context cannot be used.
func chooseContext(config *clientcmdapi.Config, context string) error {
	if context != "" {
		if config.Contexts[context] == nil {
			return fmt.Errorf("it has no context %q", context)
		}
		config.CurrentContext = context
	}
	current := config.Contexts[config.CurrentContext]
	switch {
	case config.CurrentContext == "":
		return errors.New("it has no current-context")
	case current == nil:
		return fmt.Errorf("its current-context is %q, which it does not have", config.CurrentContext)
	case config.Clusters[current.Cluster] == nil:
		return fmt.Errorf("its current context is for the cluster %q, which it does not have", current.Cluster)
	}
	user := config.AuthInfos[current.AuthInfo]
	if user == nil {
		return nil
	}
	if user.Exec != nil || user.AuthProvider != nil {
		return errors.New("its user gets credentials from another program, which is not run for a file that somebody handed over")
	}
	return nil
}

// firstLine returns the first line of an error.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
