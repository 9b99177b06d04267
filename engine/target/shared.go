package target

import (
	"context"
	"reflect"

	"github.com/authzconf/authzconf/reports"
)

// Shared says whether one cluster can be two targets, one after the other: they differ in nothing but the
// authorizer chain. An API server reads an ABAC policy only when it starts; a cluster of kind takes so long to make
// that its API server is restarted for one, while a local control plane is made anew.
func Shared(a, b Options) bool {
	if a.Chain == b.Chain || a.Cell.Provider == Existing {
		return false
	}
	if a.Cell.Provider == Local && (a.hasABAC() || b.hasABAC()) {
		return false
	}
	for _, o := range []*Options{&a, &b} {
		o.Cell.Name, o.Chain, o.Kubectl = "", "", ""
	}
	return reflect.DeepEqual(a, b)
}

// hasABAC says whether the chain has an ABAC authorizer. That there is no such chain is said when it is used.
func (o Options) hasABAC() bool {
	between, err := loadMiddle(o.Chain)
	return err == nil && between.ABACPolicy != ""
}

// Switch makes the target the one that o asks for, which shares its cluster. Where it can, the API server takes over
// the other authorizer chain while it runs. The witness is read anew. Nobody else may use the target meanwhile.
func (t *Target) Switch(ctx context.Context, o Options) error {
	if t.started.hasABAC() || o.hasABAC() {
		return t.Restart(ctx, o)
	}
	t.users.Lock()
	defer t.users.Unlock()
	return t.changeChain(ctx, o)
}

// changeChain makes the target another cell's by its chain alone.
func (t *Target) changeChain(ctx context.Context, o Options) error {
	if err := t.Reload(ctx, o.Chain); err != nil {
		return err
	}
	t.Cell, t.asked, t.started, t.Kubectl = o.Cell, o.Chain, o, o.Kubectl
	t.Witness, t.last = reports.Witness{}, nil
	return t.witness(ctx, o)
}
