package target

import (
	"context"
	"fmt"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
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

// Existing is a cluster that somebody else made. It has no recorder, its audit log and flags are out of reach, its
// metrics count what others do as well, and it gives credentials to nobody but service accounts.
const Existing = verdicts.Existing

// existingCapabilities are what is left.
func existingCapabilities() []scenarios.Capability {
	return []scenarios.Capability{scenarios.Tokens, scenarios.RBAC}
}

// startExisting connects to a cluster that runs, and holds it to what it said when the run was planned.
func (t *Target) startExisting(ctx context.Context, o Options) error {
	if o.Existing == nil {
		return fmt.Errorf("the provider %s needs a kubeconfig", Existing)
	}
	if err := t.connect(o.Existing); err != nil {
		return err
	}
	facts, err := o.Existing.Inspect(ctx)
	if err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	t.Facts = ExpectedFacts(o)
	w := &t.Witness
	w.GitVersion, w.EmulatedVersion, w.ExpectedGate, w.GateMetric = facts.GitVersion, facts.Emulated, string(t.Facts.Gate), "absent"
	w.GateProbe = &reports.GateProbe{Gate: string(scenarios.GateOff)}
	if facts.GateOn {
		w.GateProbe.Gate = string(scenarios.GateOn)
	}
	w.Mismatches = w.Judge(o.Cell)
	return nil
}

// blind says that nothing is seen of a request but its answer.
func (t *Target) blind() bool { return t.Cell.Provider == Existing || t.started.Plain != nil }

// Substitutes says whether ServiceAccounts are substituted for the users of scenarios.
func (t *Target) Substitutes() bool { return t.Cell.Provider == Existing }
