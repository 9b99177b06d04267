package target

import (
	"context"
	"fmt"

	"github.com/authzconf/authzconf/scenarios"
)

// Plain is a control plane with nothing of the harness in its authorizer chain, for what is measured and must not
// pay for a recorder. Nothing is seen of a request but its answer.
type Plain struct {
	// Authorization is the AuthorizationConfiguration; unset, the API server has its own. Files and Args are Files and
	// KubeAPIServerArgs of local.Options.
	Authorization []byte
	Files         map[string][]byte
	Args          []string
}

// startPlain starts one, and reads back its version and gate.
func (t *Target) startPlain(ctx context.Context, o Options) error {
	if o.Cell.Provider != Local {
		return fmt.Errorf("a plain target is of the provider %s", Local)
	}
	lo, err := t.options(o)
	if err != nil {
		return err
	}
	cluster, err := startLocal(ctx, o, lo)
	if err != nil {
		return err
	}
	t.started = o
	if err := t.connect(cluster); err != nil {
		return err
	}
	t.Facts = ExpectedFacts(o)
	t.Facts.Capabilities = append(existingCapabilities(), scenarios.RequestHeader)
	return t.readBack(ctx, o)
}
