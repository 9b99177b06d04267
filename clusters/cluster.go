// Package clusters says what authzconf needs of a running cluster. The packages below it provide one: local as child
// processes, kind as containers with real nodes, existing from a kubeconfig.
package clusters

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Cluster is a running API server with the ways to reach it. Its methods may be called from several goroutines.
type Cluster interface {
	// Admin authenticates as a member of system:masters (of an existing cluster: as whom its kubeconfig is for),
	// without a client-side request limit.
	Admin() *rest.Config
	// FrontProxy authenticates as a proxy that may name any user in X-Remote- headers; nil where the cluster has
	// none.
	FrontProxy() *rest.Config
	// Anonymous carries no credentials, only the trust in the server.
	Anonymous() *rest.Config
	// Done is closed when the cluster dies by itself; Err then says which part and shows its last log lines. Err is
	// nil before that.
	Done() <-chan struct{}
	Err() error
	// Stop ends everything and removes what was left on disk. It is idempotent.
	Stop() error
}

// Kubeconfig writes a kubeconfig with one context of this name for what a client configuration authenticates as.
func Kubeconfig(name string, c *rest.Config) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, Token: c.BearerToken}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}
