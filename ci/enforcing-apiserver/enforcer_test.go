package enforcing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/metrics"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	admissionoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// enforcer is the authorizer of the server, and its admission plugin. It reads the chain lazily, as the KEP proposes.
type enforcer struct {
	on    bool
	fault string
	wire  *wire.Revision
	// current are the webhooks of the configuration, which may be reloaded. A decision keeps those that have made it.
	current atomic.Pointer[[]*webhook]
	rest    authorizer.Authorizer // the authorizers behind them, system:masters before them
}

func (e *enforcer) webhooks() []*webhook { return *e.current.Load() }

// link is what one authorizer of the chain has said.
type link struct {
	name   string
	by     *webhook // nil for those behind the webhooks
	status vectors.SubjectAccessReviewStatus
	err    error
}

// decision is what the chain has said so far.
type decision struct {
	attributes authorizer.Attributes
	kind       vectors.Decision
	webhooks   []*webhook
	links      []link
	reason     string
	err        error
}

// held is what is kept of a request between its authorization and its admission.
type held struct {
	first     authorizer.Attributes // of the request itself, once it is past the filter
	decisions []*decision
	data      *vectors.ConditionData // once admission is past
}

type heldKey struct{}

// ask asks the authorizer at a place of the chain.
func (e *enforcer) ask(ctx context.Context, webhooks []*webhook, at int, a authorizer.Attributes, mode vectors.Mode) (l link) {
	if at < len(webhooks) {
		w := webhooks[at]
		l = link{name: w.name, by: w}
		if l.status, l.err = w.ask(ctx, a, mode); l.status.Decision() == vectors.Conditional && e.fault != "not-counted" {
			metrics.RecordAuthorizationDecision("Webhook", w.name, "conditional")
		}
		return l
	}
	d, reason, err := e.rest.Authorize(ctx, a)
	return link{
		"rest",
		nil,
		vectors.SubjectAccessReviewStatus{Allowed: d == authorizer.DecisionAllow, Denied: d == authorizer.DecisionDeny, Reason: reason},
		err,
	}
}

// decide asks the chain until what comes of it is known, or a conditional allow is seen.
func (e *enforcer) decide(ctx context.Context, a authorizer.Attributes, mode vectors.Mode) *decision {
	d, conditional := &decision{attributes: a, kind: vectors.NoOpinion, webhooks: e.webhooks()}, false
	isWildcard := slices.Contains([]string{a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource()}, "*")
	// A check of escalate is about every version, so the second of these faults has to leave the rule out, too.
	isOverlooked := slices.Contains([]string{"wildcards-on-conditions", "any-check-on-conditions"}, e.fault)
	if isWildcard && !isOverlooked {
		mode = vectors.None // no object of one version is there to evaluate conditions on
	}
	var errs []error
	for i := 0; i <= len(d.webhooks); i++ {
		l := e.ask(ctx, d.webhooks, i, a, mode)
		if e.fault == "ignores-deny-conditions" && l.status.Decision() == vectors.Conditional && !canAllow(l.status.ConditionsChain) {
			l.status.ConditionsChain = nil
		}
		d.links = append(d.links, l)
		switch kind := l.status.Decision(); {
		case kind == vectors.NoOpinion:
			errs = append(errs, l.err)
			continue
		case kind == vectors.Conditional && !canAllow(l.status.ConditionsChain):
			conditional = true
			continue
		case kind == vectors.Conditional, kind == vectors.Allow && conditional:
			d.kind = vectors.ConditionalAllow
		default:
			d.kind, d.reason, d.err = kind, l.status.Reason, l.err
		}
		for i++; e.fault == "asks-on" && d.kind != vectors.ConditionalAllow && i < len(d.webhooks); i++ {
			e.ask(ctx, d.webhooks, i, a, mode)
		}
		return d
	}
	if d.err = errors.Join(errs...); conditional {
		d.kind = vectors.ConditionalDeny
	}
	return d
}

// canAllow reports whether sets can come to Allow.
func canAllow(sets []vectors.ConditionSet) bool {
	return slices.ContainsFunc(vectors.Leaves(sets), func(s vectors.ConditionSet) bool {
		return s.Allowed || slices.ContainsFunc(s.Conditions, func(c vectors.Condition) bool { return c.Effect == vectors.Allow })
	})
}

// canDeny reports whether sets can come to Deny.
func canDeny(sets []vectors.ConditionSet) bool {
	return slices.ContainsFunc(vectors.Leaves(sets), func(s vectors.ConditionSet) bool {
		return s.Denied || slices.ContainsFunc(s.Conditions, func(c vectors.Condition) bool { return c.Effect == vectors.Deny })
	})
}

// canBecome reports whether sets can come to a decision.
func canBecome(sets []vectors.ConditionSet, s vectors.SubjectAccessReviewStatus) bool {
	if s.Allowed {
		return canAllow(sets)
	}
	return !s.Denied || canDeny(sets)
}

// evaluate comes to a concrete decision, and asks those that were not asked yet if it has to.
func (e *enforcer) evaluate(ctx context.Context, d *decision, data vectors.ConditionData) vectors.SubjectAccessReviewStatus {
	for i := 0; i <= len(d.webhooks); i++ {
		if i == len(d.links) {
			d.links = append(d.links, e.ask(ctx, d.webhooks, i, d.attributes, vectors.Optimized))
		}
		l := d.links[i]
		s := l.status
		if s.Decision() == vectors.Conditional {
			sets := s.ConditionsChain
			if e.fault == "first-set-only" {
				sets = sets[:1]
			}
			s, _ = l.by.evaluate(ctx, vectors.AuthorizationConditionsRequest{ConditionSets: sets, ConditionData: data})
		}
		if e.fault == "deny-goes-on" {
			s.Denied = false
		}
		if s.Allowed || s.Denied {
			return s
		}
	}
	return vectors.SubjectAccessReviewStatus{}
}

// Authorize implements authorizer.Authorizer. The filter and the compound checks of a request that is past it are
// answered Allow on conditions, which are evaluated later; nobody else is.
func (e *enforcer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(a.GetUser().GetGroups(), user.SystemPrivilegedGroup) {
		return e.rest.Authorize(ctx, a)
	}
	h, _ := ctx.Value(heldKey{}).(*held)
	mode := vectors.None
	if e.on &&
		h != nil &&
		(e.filters(ctx, h, a) ||
			h.compound(a) ||
			e.fault == "any-check-on-conditions" && h.first != nil) {
		mode = vectors.Optimized
	}
	d := e.decide(ctx, a, mode)
	if mode != vectors.None && h.first == nil {
		h.first = a
	}
	switch {
	case d.kind == vectors.Allow:
		return authorizer.DecisionAllow, d.reason, d.err
	case d.kind == vectors.Deny:
		return authorizer.DecisionDeny, d.reason, d.err
	case d.kind != vectors.ConditionalAllow || !e.supports(h.first):
		return authorizer.DecisionNoOpinion, d.reason, d.err
	case h.data != nil && e.fault != "compound-not-evaluated":
		if s := e.evaluate(ctx, d, *h.data); !s.Allowed {
			return authorizer.DecisionNoOpinion, s.Reason, nil
		}
	case a == h.first || e.fault != "compound-not-evaluated":
		h.decisions = append(h.decisions, d)
		e.announce(ctx, a)
	}
	return authorizer.DecisionAllow, "on conditions", nil
}

// announce says in the audit event that a request goes on on conditions.
func (e *enforcer) announce(ctx context.Context, a authorizer.Attributes) {
	if e.fault != "not-in-the-audit-log" {
		audit.AddAuditAnnotation(ctx, "authorization.k8s.io/is-conditional-decision", "true")
	}
	if u, isPlain := a.GetUser().(*user.DefaultInfo); e.fault == "tells-admission" && isPlain {
		u.Extra = map[string][]string{"authorization.k8s.io/is-conditional-decision": {"true"}}
	}
}

// filters says whether it is the authorization filter that asks: about the request itself, before anything else is known.
func (e *enforcer) filters(ctx context.Context, h *held, a authorizer.Attributes) bool {
	of, err := filters.GetAuthorizerAttributes(ctx)
	return err == nil && h.first == nil && reflect.DeepEqual(of, a)
}

// compound says whether it is asked about the create that a request turns into, or that a connect request needs.
func (h *held) compound(a authorizer.Attributes) bool {
	return h.first != nil && h.first.GetVerb() != "create" && a.GetVerb() == "create" && a.GetUser().GetName() == h.first.GetUser().GetName() &&
		a.GetResource() == h.first.GetResource() &&
		a.GetSubresource() == h.first.GetSubresource()
}

// supports says whether admission stands behind a request. Custom resources and aggregated servers are left out.
func (e *enforcer) supports(a authorizer.Attributes) bool {
	connect := slices.Contains([]string{"pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "nodes/proxy"}, a.GetResource()+"/"+a.GetSubresource())
	writes := slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, a.GetVerb())
	served := legacyscheme.Scheme.IsVersionRegistered(schema.GroupVersion{Group: a.GetAPIGroup(), Version: a.GetAPIVersion()})
	return e.fault == "reads-on-conditions" ||
		connect ||
		writes && served
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (e *enforcer) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(e.Authorize(ctx, a))
}

// EvaluateConditions implements authorizer.Authorizer.
func (e *enforcer) EvaluateConditions(
	context.Context,
	authorizer.ConditionsAwareDecision,
	authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// outside stands before all filters, and gives each request a place to keep its decisions.
func (e *enforcer) outside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), heldKey{}, &held{})))
	})
}

// status is what a SubjectAccessReview shows: all sets up to the first concrete decision.
func (e *enforcer) status(ctx context.Context, a authorizer.Attributes, mode vectors.Mode) (out vectors.SubjectAccessReviewStatus) {
	d := e.decide(ctx, a, mode)
	if d.kind != vectors.ConditionalAllow && d.kind != vectors.ConditionalDeny ||
		e.fault == "shown-as-allowed" {
		out.Allowed = d.kind == vectors.Allow || d.kind == vectors.ConditionalAllow
		out.Denied = d.kind == vectors.Deny
		out.Reason = d.reason
		if d.err != nil {
			out.EvaluationError = d.err.Error()
		}
		return out
	}
	for i := 0; i <= len(d.webhooks); i++ {
		if i == len(d.links) {
			d.links = append(d.links, e.ask(ctx, d.webhooks, i, a, mode))
		}
		l := d.links[i]
		switch sets := slices.Clone(l.status.ConditionsChain); {
		case l.status.Allowed || l.status.Denied:
			out.ConditionsChain = append(out.ConditionsChain,
				vectors.ConditionSet{AuthorizerName: l.name, Allowed: l.status.Allowed, Denied: l.status.Denied},
			)
			return out
		case len(sets) > 1 && e.wire.Rules.Depth > 1:
			out.ConditionsChain = append(out.ConditionsChain, vectors.ConditionSet{AuthorizerName: l.name, ConditionsChain: sets})
		default:
			for j := range sets {
				sets[j].AuthorizerName = l.name
			}
			out.ConditionsChain = append(out.ConditionsChain, sets...)
		}
	}
	return out
}

// register makes the admission plugin known, as the first of all. It is on unless it is turned off.
func (e *enforcer) register(o *admissionoptions.AdmissionOptions) {
	o.Plugins.Register(plugin, func(io.Reader) (admission.Interface, error) { return e, nil })
	if e.fault == "enforces-last" {
		o.RecommendedPluginOrder = append(o.RecommendedPluginOrder, plugin)
		return
	}
	o.RecommendedPluginOrder = append([]string{plugin}, o.RecommendedPluginOrder...)
}

// Handles implements admission.Interface.
func (e *enforcer) Handles(admission.Operation) bool { return e.on }

// Validate implements admission.ValidationInterface: every decision that was held has to come to Allow.
func (e *enforcer) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) (err error) {
	h, _ := ctx.Value(heldKey{}).(*held)
	if h == nil || h.first == nil {
		return nil
	}
	data := vectors.ConditionData{Operation: string(a.GetOperation())}
	kind := a.GetKind()
	if e.fault == "in-the-stored-version" && kind.Group == "autoscaling" {
		kind.Version = "v2"
	}
	data.Object, err = versioned(a.GetObject(), kind, o)
	if err == nil {
		data.OldObject, err = versioned(a.GetOldObject(), kind, o)
	}
	if err != nil {
		return err
	}
	switch e.fault {
	case "no-object":
		data.Object, data.OldObject = nil, nil
	case "no-old-object":
		data.OldObject = nil
	case "operation-by-verb":
		if v := h.first.GetVerb(); v == "update" || v == "patch" {
			data.Operation = string(admission.Update)
		}
	}
	if a.GetOperation() == admission.Connect {
		h.data = &data
	}
	for _, d := range h.decisions {
		if e.fault == "evaluates-nothing" {
			return nil
		}
		if s := e.evaluate(ctx, d, data); !s.Allowed {
			return e.forbid(a, h.first, s.Reason)
		}
	}
	return e.proxied(ctx, h, a)
}

// forbid refuses a request as the filter does, and gives the reason.
func (e *enforcer) forbid(a admission.Attributes, first authorizer.Attributes, reason string) error {
	if reason = strings.TrimSpace(reason); e.fault == "says-nothing" {
		return admission.NewForbidden(a, errors.New("no"))
	}
	return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), responsewriters.ForbiddenStatusError(first, reason))
}

// proxied is the check of create for proxies, which Kubernetes has for other connect requests only.
func (e *enforcer) proxied(ctx context.Context, h *held, a admission.Attributes) error {
	if a.GetOperation() != admission.Connect || a.GetSubresource() != "proxy" || h.first.GetVerb() == "create" ||
		e.fault == "proxies-by-get" {
		return nil
	}
	of := h.first
	d, reason, err := e.Authorize(ctx, authorizer.AttributesRecord{
		User: of.GetUser(), Verb: "create", Namespace: of.GetNamespace(), APIGroup: of.GetAPIGroup(), APIVersion: of.GetAPIVersion(),
		Resource: of.GetResource(), Subresource: of.GetSubresource(), Name: of.GetName(), ResourceRequest: true,
	})
	if d != authorizer.DecisionAllow {
		return admission.NewForbidden(a, errors.Join(fmt.Errorf("its user may not create it: %s", strings.TrimSpace(reason)), err))
	}
	return nil
}

// versioned is an object in a version.
func versioned(from runtime.Object, kind schema.GroupVersionKind, o admission.ObjectInterfaces) (out vectors.Object, err error) {
	if from == nil || reflect.ValueOf(from).IsNil() {
		return nil, nil
	}
	if from, err = admission.ConvertToGVK(from, kind, o); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal(raw, &out)
}
