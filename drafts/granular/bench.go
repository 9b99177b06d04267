package granular

import (
	"context"
	"errors"
	"sync"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
)

// executors is a group with every right. The reference carries out requests as a member of it if granular permissions
// allow them.
const executors = "authzconf:granular-executors"

// Bench is an API server with the custom resource of the scenarios and the objects that enforcers need.
type Bench struct {
	server   *server.Server
	replayer *replay.Replayer
	admin    *dynamic.DynamicClient
	client   kubernetes.Interface

	actors sync.Map // by ID: several enforcers use the same actors
}

// Start starts an API server. It needs no audit log: the recorder sees what the enforcer asks.
func Start(ctx context.Context, o server.Options) (_ *Bench, err error) {
	b := &Bench{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.server, err = server.Start(ctx, o); err != nil {
		return nil, err
	}
	if b.replayer, err = replay.New(b.server); err != nil {
		return nil, err
	}
	b.client = b.replayer.Admin()
	admin := b.server.Admin()
	admin.WarningHandler = rest.NoWarnings{}
	if b.admin, err = dynamic.NewForConfig(admin); err != nil {
		return nil, err
	}
	if err := b.grantExecutors(ctx); err != nil {
		return nil, err
	}
	return b, b.installWidgets(ctx)
}

// grantExecutors grants every right to the group of executors.
func (b *Bench) grantExecutors(ctx context.Context) error {
	all := []string{"*"}
	return b.replayer.Grant(ctx, &scenarios.Scenario{ID: "granular", Suffix: "granular-executors", Grants: []scenarios.Grant{
		{Subject: scenarios.Subject{Group: executors}, Verbs: all, APIGroups: all, Resources: all},
	}})
}

// Close stops the API server.
func (b *Bench) Close() error {
	if b.server == nil {
		return nil
	}
	return b.server.Stop()
}
