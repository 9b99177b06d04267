// Package predict predicts what impersonation costs the authorizers of a cluster, which need not exist: how many
// authorization checks its API servers make, and how many access reviews of these reach a webhook. It uses a closed
// form and a simulation of the caches. It is pure: it does no I/O, and has no clock.
//
// The blocks of a storm are not compared with this prediction, but with that of population.History, which follows the
// requests that were sent.
package predict

import (
	"time"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// These are the format of plan files.
const (
	APIVersion = "authzconf.dev/v1alpha1"
	Kind       = "LoadPrediction"
)

// Plan is the cluster whose load is predicted.
type Plan struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// APIServers is the number of API servers, each with caches of its own. Nodes and deputies are spread over them,
	// and stay connected to theirs.
	APIServers int `json:"apiServers"`
	// Gate and RBAC, if they are given, select the situations with this gate and these permissions.
	Gate scenarios.Gate `json:"gate,omitempty"`
	RBAC RBAC           `json:"rbac,omitempty"`
	// Authorizer is the chain of authorizers.
	Authorizer Authorizer `json:"authorizer"`
	// Memory is how long an API server remembers a success of a constrained mode: 10 s, which is fixed in Kubernetes.
	Memory scenarios.Duration `json:"memory"`
	// Modes is how many names the API server remembers the last mode for.
	Modes int `json:"modes"`
	// Within is how long it takes until everybody has come back after a restart, or has started in a rollout.
	Within scenarios.Duration `json:"within"`
	// Workloads are those who impersonate. They share the caches.
	Workloads []Workload `json:"workloads"`
}

// RBAC says which permissions the workloads have.
type RBAC string

// These are the permissions: those before the move to constrained impersonation, those after it, and none.
const (
	LegacyRBAC      RBAC = "legacy"
	ConstrainedRBAC RBAC = "constrained"
	NoRBAC          RBAC = "none"
)

// Chain is the order of authorizers.
type Chain string

// These are the chains.
const (
	// WebhookFirst asks the webhook before Node and RBAC, so that every check reaches it.
	WebhookFirst Chain = "webhook"
	// WebhookLast asks the webhook after Node and RBAC, so that only what these do not allow reaches it.
	WebhookLast Chain = "webhook-last"
	// RBACAlone is Node and RBAC.
	RBACAlone Chain = "rbac"
	// NoAuthorizer allows everything (AlwaysAllow).
	NoAuthorizer Chain = "none"
)

func chains() []Chain { return []Chain{WebhookFirst, WebhookLast, RBACAlone, NoAuthorizer} }

// WebhookReply is what a webhook answers to a check that is allowed in the end.
type WebhookReply string

// These are the answers.
const (
	// AnswerNoOpinion leaves the decision to RBAC, which has the permissions.
	AnswerNoOpinion WebhookReply = "no-opinion"
	// AnswerAllow means that the webhook has the permissions, and RBAC has none of them.
	AnswerAllow WebhookReply = "allow"
)

// Authorizer is the chain, with what an API server remembers of its webhook.
type Authorizer struct {
	Chain Chain `json:"chain"`
	// Answers is what the webhook answers to a check that is allowed in the end.
	Answers WebhookReply `json:"answers"`
	// Cache is off if the API server remembers no answer (cacheAuthorizedRequests and cacheUnauthorizedRequests).
	Cache bool `json:"cache"`
	// Allowed and Denied are how long an answer is remembered that allows, and how long any other one is.
	Allowed scenarios.Duration `json:"allowedTTL"`
	Denied  scenarios.Duration `json:"deniedTTL"`
	// Size is how many answers are remembered. It is fixed in Kubernetes.
	Size int `json:"cacheSize"`
	// Takes is how long one check takes. Checks of requests that are open at the same time may ask the same, because
	// there is no single-flight.
	Takes scenarios.Duration `json:"checkTakes"`
}

// Workload is a group of agents or users that ask in the same way: the agents of DaemonSets, one for each node and
// DaemonSet, or the users of a deputy such as a dashboard.
type Workload struct {
	Name string `json:"name"`
	// Mode is the mode of impersonation that serves it: constrained, once the permissions are, or legacy for good.
	Mode oracle.Mode `json:"mode"`
	// Nodes and DaemonSets are those of node agents.
	Nodes      int `json:"nodes,omitempty"`
	DaemonSets int `json:"daemonSets,omitempty"`
	// NameAlone makes agents impersonate a node only by its name today. Otherwise they also ask for the group
	// system:nodes, which legacy impersonation does not add by itself, and without which a node may not do what nodes
	// do. Constrained modes add the group, and do not serve a request that asks for it.
	NameAlone bool `json:"nameAlone,omitempty"`
	// Users is the number of users for whom a deputy acts, each with the given numbers of groups and values of extra.
	// Deputies is the number of its pods.
	Users    int `json:"users,omitempty"`
	Groups   int `json:"groups,omitempty"`
	Extras   int `json:"extras,omitempty"`
	Deputies int `json:"deputies,omitempty"`
	// ServiceAccounts says which pods share one.
	ServiceAccounts profile.ServiceAccounts `json:"serviceAccounts"`
	// Every is the time between two requests of one agent or user.
	Every scenarios.Duration `json:"every"`
	// Requests is how many different requests each of them sends in turn.
	Requests int `json:"requests"`
}

// Defaults returns the plan of a cluster with the defaults of Kubernetes, and no workload.
func Defaults() Plan {
	return Plan{
		APIVersion: APIVersion, Kind: Kind, APIServers: 1,
		Authorizer: Authorizer{
			Chain: WebhookFirst, Answers: AnswerNoOpinion, Cache: true,
			Allowed: scenarios.Duration(5 * time.Minute), Denied: scenarios.Duration(30 * time.Second),
			Size: 8192, Takes: scenarios.Duration(time.Millisecond),
		},
		Memory: scenarios.Duration(profile.CacheLife), Modes: 10_000, Within: scenarios.Duration(time.Second),
	}
}

// DefaultWorkload returns a workload of one DaemonSet whose agents ask every 30 s.
func DefaultWorkload() Workload {
	return Workload{
		Mode: oracle.AssociatedNode, ServiceAccounts: profile.Shared, Every: scenarios.Duration(30 * time.Second), Requests: 1,
	}
}

// isOfNodes reports whether the workload consists of node agents.
func (w Workload) isOfNodes() bool { return w.Users == 0 }

// units returns the number of agents or users.
func (w Workload) units() int {
	if w.isOfNodes() {
		return w.Nodes * w.DaemonSets
	}
	return w.Users
}

// Rate returns how many requests a second there are.
func (w Workload) Rate() float64 { return float64(w.units()) / time.Duration(w.Every).Seconds() }

// Situation is a state of the gate together with permissions.
type Situation struct {
	Gate scenarios.Gate `json:"gate"`
	RBAC RBAC           `json:"rbac"`
}

// Situations returns what is predicted: the steps of the move to constrained impersonation, or those that Gate and RBAC
// select.
func (p Plan) Situations() (list []Situation) {
	gates, permissions := []scenarios.Gate{scenarios.GateOff, scenarios.GateOn}, []RBAC{LegacyRBAC, ConstrainedRBAC}
	if p.Gate != "" {
		gates = []scenarios.Gate{p.Gate}
	}
	if p.RBAC != "" {
		permissions = []RBAC{p.RBAC}
	}
	isWanted := p.Gate != "" && p.RBAC != ""
	for _, gate := range gates {
		for _, rbac := range permissions {
			isRefused := gate == scenarios.GateOff && rbac == ConstrainedRBAC
			if isWanted || !isRefused {
				list = append(list, Situation{gate, rbac})
			}
		}
	}
	return list
}
