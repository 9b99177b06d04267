package local

import (
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters"
)

// Admin returns a client configuration for a member of system:masters, whom no authorizer ever
// sees: for preparing things, never a test's requestor. Like all of them it has no client-side
// rate limit, and names the port of the moment: after RestartAPIServer ask again.
func (c *ControlPlane) Admin() *rest.Config {
	return c.config(c.pki.admin)
}

// FrontProxy returns a client configuration for an authenticating proxy: the API server believes its headers
// X-Remote-User, X-Remote-Uid, X-Remote-Group and X-Remote-Extra-<key>, so it can act as any requestor. A request
// without X-Remote-User is unauthorized.
func (c *ControlPlane) FrontProxy() *rest.Config {
	return c.config(c.pki.frontProxy)
}

// Anonymous returns a client configuration without credentials, to which a token can be added.
func (c *ControlPlane) Anonymous() *rest.Config {
	return c.config(keyPair{})
}

func (c *ControlPlane) config(client keyPair) *rest.Config {
	return &rest.Config{
		Host: c.url(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.pki.servingCA,
			CertData: client.cert,
			KeyData:  client.key,
		},
		// A negative rate is no limit; 0 would be client-go's default.
		QPS: -1,
	}
}

// KubeconfigPath is a kubeconfig for the admin, readable by this user only.
func (c *ControlPlane) KubeconfigPath() string {
	return filepath.Join(c.run.path, kubeconfigFile)
}

func (c *ControlPlane) writeKubeconfig() error {
	data, err := clusters.Kubeconfig("authzconf", c.Admin())
	if err != nil {
		return err
	}
	return c.run.write(kubeconfigFile, data)
}
