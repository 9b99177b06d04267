// Package clusters says what authzconf needs of a running cluster. The packages
// below it provide one: local as child processes.
package clusters

import "k8s.io/client-go/rest"

// Cluster is a running API server with the ways to reach it. Its methods may be called from several goroutines.
type Cluster interface {
	// Admin authenticates as a member of system:masters, without a client-side request limit.
	Admin() *rest.Config
	// FrontProxy authenticates as a proxy that may name any user in X-Remote-
	// headers; nil where the cluster has none.
	FrontProxy() *rest.Config
	// Anonymous carries no credentials, only the trust in the server.
	Anonymous() *rest.Config
	// Done is closed when the cluster dies by itself; Err then says which part
	// and shows its last log lines. Err is nil before that.
	Done() <-chan struct{}
	Err() error
	// Stop ends everything and removes what was left on disk. It is idempotent.
	Stop() error
}
