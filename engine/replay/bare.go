package replay

import (
	"context"

	"github.com/authzconf/authzconf/scenarios"
)

// Granted is a bound scenario whose grants are in force as RBAC.
type Granted struct{ run *run }

// Provision brings the grants of a bound scenario into force, those that its
// steps bring later apart, without sending anything.
func (r *Replayer) Provision(ctx context.Context, bound *scenarios.Scenario) (*Granted, error) {
	run := &run{target: r.target, admin: r.admin, bound: bound, suffix: bound.Suffix}
	return &Granted{run}, run.provision(ctx)
}

// Change carries out a step that grants or revokes.
func (g *Granted) Change(ctx context.Context, st *scenarios.Step) error {
	if st.Grant != "" {
		return g.run.admin.grant(ctx, g.run.grants[st.Grant])
	}
	return g.run.admin.revoke(ctx, g.run.grants[st.Revoke])
}

// Token is the token of a requestor that is a service account, by its alias.
func (g *Granted) Token(alias string) string { return g.run.tokens[alias] }

// Grant makes the roles of a bound scenario's grants and waits until they are in
// force, without anything else that it needs.
func (r *Replayer) Grant(ctx context.Context, bound *scenarios.Scenario) error {
	if err := r.admin.places(ctx, placesOf(&scenarios.Scenario{Grants: bound.Grants})); err != nil {
		return err
	}
	return r.admin.grant(ctx, scenarios.RenderRBAC(bound))
}
