package certify

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// These are the checks of the two levels that need an API server.
const (
	inCluster  = "in-cluster"
	revocation = "revocation"
)

const (
	// authorizedTTL and unauthorizedTTL are how long the API server is told to remember answers. They are shorter than
	// the defaults (5 min and 30 s), for which a test would take too long.
	authorizedTTL   = 3 * time.Second
	unauthorizedTTL = 2 * time.Second
	// slack is by how much a window may exceed its times to live, because of the time between two questions and because
	// the machine may be busy.
	slack          = time.Second
	webhookTimeout = 5 * time.Second
)

// chainPlace is one way to put an authorizer into the chain.
type chainPlace struct {
	position server.Position
	deny     bool
}

func (p chainPlace) String() string {
	if p.deny {
		return string(p.position) + "/deny"
	}
	return string(p.position) + "/no-opinion"
}

// chainPlaces returns all places of the chain in which the authorizer is tried.
func chainPlaces() (out []chainPlace) {
	for _, position := range server.Positions() {
		out = append(out, chainPlace{position, false}, chainPlace{position, true})
	}
	return out
}

// phase is the state of the connection to the webhook when a check asks.
type phase string

const (
	phaseUp       phase = "up"
	phaseRepeated phase = "again" // asked before, so that the API server may remember the answer
	phaseDown     phase = "down"
	phaseRestored phase = "back" // up again
)

// reasonHidesAuthorizers is the finding about an authorizer that keeps the API server from asking those behind it.
const reasonHidesAuthorizers = "hides-authorizers-behind"

// clusterCheck is one check of the whole chain of an API server: a SubjectAccessReview or a scenario.
type clusterCheck struct {
	ID    string
	Place chainPlace
	Phase phase
	Spec  spec
	// Scenario is the scenario that is replayed, if the check is one.
	Scenario *scenarios.Scenario
	Expect   scenarios.Decision // what the whole chain must decide
	Reason   string
}

// roleUser returns a user who has a role, but nothing in the certification's policy.
func (b *Plan) roleUser() string { return scenarios.Suffix(b.Policy.Seed, "certify", "behind") }

// chainSampleStep is the step by which other questions of level core are selected for the chain: one in so many.
const chainSampleStep = 40

// clusterPlan returns all checks of the chain. Each scenario is given to one of the places, because its names are those
// of the policy, so that it can be replayed only once.
func (b *Plan) clusterPlan() (out []clusterCheck) {
	forChain, complete := b.questionsForChain(), b.completeScenarios()
	for i, p := range chainPlaces() {
		out = append(out, b.questionsAt(p, forChain)...)
		for j, s := range complete {
			if j%len(chainPlaces()) == i {
				out = append(out,
					clusterCheck{
						ID:       p.String() + "/scenario/" + s.ID,
						Place:    p,
						Phase:    phaseUp,
						Scenario: s,
						Reason:   "impersonation-differs",
					},
				)
			}
		}
	}
	return out
}

// isForChain reports whether the i-th question is also asked in the chain of an API server.
func (v Question) isForChain(i int) bool {
	isTranscript := v.Level == NoOvergrant && strings.HasPrefix(v.ID, "transcript/")
	isPicked := strings.HasPrefix(v.Reason, "ignores-") || i%chainSampleStep == 0
	isCore := v.Level == Core && isPicked
	isWanted := isTranscript || isCore
	return v.Form == "" && isWanted
}

// questionsForChain returns the questions that are also asked in the chain of an API server.
func (b *Plan) questionsForChain() (out []Question) {
	for i, v := range slices.Concat(b.specialQuestions(), b.relationQuestions()) {
		if v.isForChain(i) {
			out = append(out, v)
		}
	}
	return out
}

// questionsAt returns the reviews that are asked in one place of the chain. forChain are those that are asked in every
// place.
func (b *Plan) questionsAt(p chainPlace, forChain []Question) []clusterCheck {
	n := b.Policy.Identities
	var out []clusterCheck
	add := func(ph phase, name, reason string, expect scenarios.Decision, s spec) {
		out = append(out,
			clusterCheck{ID: fmt.Sprintf("%s/%s/%s", p, ph, name), Place: p, Phase: ph, Spec: s, Expect: expect, Reason: reason},
		)
	}
	for _, ph := range []phase{phaseUp, phaseRepeated} {
		for _, v := range forChain {
			add(ph, v.ID, v.Reason, v.Expect, v.Spec)
		}
	}
	unknownUser := func(name string) spec { return newReview(b.roleUser(), "get", "", "configmaps", n.Namespace, name) }
	knownUser := func(name string) spec { return newReview(n.Reader, "get", "", "configmaps", n.Namespace, name) }
	granted := func(name string) spec { return newReview(n.Reader, "get", "", "pods", n.Namespace, name) }
	node := withGroups(newReview("system:node:certified", "get", "", "nodes", "", "certified"), "system:nodes", "system:authenticated")
	for _, ph := range []phase{phaseUp, phaseRepeated} {
		add(ph, "role-of-an-unknown-user", reasonHidesAuthorizers, scenarios.Allow, unknownUser("one"))
		add(ph, "role-of-a-known-user", reasonHidesAuthorizers, scenarios.Allow, knownUser("one"))
		add(ph, "node-reads-itself", reasonHidesAuthorizers, scenarios.Allow, node)
	}
	add(phaseRepeated, "remembered", "does-not-allow-what-is-granted", scenarios.Allow, granted("remembered-"+b.roleUser()))
	refused := scenarios.NoOpinion
	if p.deny {
		refused = scenarios.Deny
	}
	roles := refused // what becomes of a role if the webhook is asked before RBAC
	if p.position == server.Last || !p.deny {
		roles = scenarios.Allow
	}
	const failure = "failure-policy-ignored"
	add(phaseDown, "remembered", "cache-not-used", scenarios.Allow, granted("remembered-"+b.roleUser()))
	add(phaseDown, "granted-by-the-webhook", failure, refused, granted("down"))
	add(phaseDown, "granted-by-nobody", failure, refused, newReview(n.Outsider, "get", "", "secrets", n.Namespace, "down"))
	add(phaseDown, "role-of-an-unknown-user", failure, roles, unknownUser("down"))
	add(phaseDown, "role-of-a-known-user", failure, roles, knownUser("down"))
	const recovers = "does-not-recover"
	add(phaseRestored, "granted-by-the-webhook", recovers, scenarios.Allow, granted("back"))
	add(phaseRestored, "role-of-an-unknown-user", recovers, scenarios.Allow, unknownUser("back"))
	return out
}

// completeScenarios returns the scenarios for the API server that only send requests and whose grants are all in the
// policy. Their names are not unique yet.
func (b *Plan) completeScenarios() (out []*scenarios.Scenario) {
	facts := server.ExpectedFacts(server.Options{Cell: b.cell})
	return seq.Filter(b.scenarios, func(s *scenarios.Scenario) bool {
		ok, _, _ := s.Selected(facts)
		return ok && b.isComplete(s)
	})
}

// isComplete reports whether a scenario only sends requests that a webhook can decide about, and whether the policy has
// all of its grants.
func (b *Plan) isComplete(s *scenarios.Scenario) bool {
	bound, _ := s.Bind(b.suffixOf(s))
	needsSetup := len(s.Policy) > 0 || len(s.Nodes) > 0 || s.Requires.Chain != "" ||
		slices.Contains(s.Requires.Capabilities, scenarios.Aggregation)
	needsTime := s.Alone() || s.Waits() > 0
	hasRoles := len(scenarios.RulesFromManifests(slices.Concat(bound.Manifests, bound.Objects))) > 0
	isOther := len(s.Grants) == 0 || needsSetup || needsTime || hasRoles
	if isOther {
		return false
	}
	toAnother := func(g scenarios.Grant) bool { return !strings.Contains(g.Subject.User+g.Subject.Group, bound.Suffix) }
	isHidden := func(st scenarios.Step) bool { return st.Request == nil || !canWebhookDecide(st) }
	return !slices.ContainsFunc(bound.Grants, toAnother) && !slices.ContainsFunc(s.Steps, isHidden)
}

// canWebhookDecide reports whether a webhook can decide about a request as RBAC does. It cannot where RBAC itself looks
// at its roles after all authorizers, where RBAC lists somebody's rules or gives a reason, and where a name has bytes
// that are not UTF-8: JSON cannot have them, so another name arrives.
func canWebhookDecide(st scenarios.Step) bool {
	r := st.Request
	saysWhy := st.Expect != nil && strings.Contains(st.Expect.MessageMatches, "RBAC: allowed by")
	isAboutRoles := r.APIGroup == "rbac.authorization.k8s.io" || r.Resource == "selfsubjectrulesreviews"
	cannotArrive := slices.ContainsFunc(r.Headers, func(h scenarios.Header) bool { return !utf8.ValidString(h.Bytes()) })
	return !saysWhy && !isAboutRoles && !cannotArrive
}

// suffixOf returns the end of the policy's names for a scenario.
func (b *Plan) suffixOf(s *scenarios.Scenario) string {
	return scenarios.Suffix(b.Policy.Seed, "certify", s.ID)
}
