package predict

import (
	"fmt"
	"slices"
	"time"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// These are bounds of what can be requested. A simulation of more would not end in seconds.
const (
	maxNodes    = 100_000
	maxUnits    = 1_000_000
	maxServers  = 50
	maxRequests = 1000
	maxValues   = 50
	maxSize     = 10_000_000
)

// Parse reads a plan file. name is used in messages, each of which begins with a place in the file.
func Parse(name string, data []byte) (*Plan, func(path string) string, error) {
	p := Defaults()
	file, err := scenarios.DecodeKind(name, data, "a load prediction", APIVersion, Kind, &p)
	if err != nil {
		return nil, nil, err
	}
	for i := range p.Workloads {
		p.Workloads[i].Complete(i)
	}
	return &p, file.At, nil
}

// Complete sets what is left out of the workload with a number.
func (w *Workload) Complete(i int) {
	d := DefaultWorkload()
	if w.Name == "" {
		w.Name = fmt.Sprintf("workload-%d", i+1)
	}
	if w.Mode == "" {
		w.Mode = d.Mode
		if w.Users > 0 {
			w.Mode = oracle.UserInfo
		}
	}
	if w.ServiceAccounts == "" {
		w.ServiceAccounts = d.ServiceAccounts
	}
	if w.Every == 0 {
		w.Every = d.Every
	}
	if w.Requests == 0 {
		w.Requests = d.Requests
	}
	if w.Nodes > 0 && w.DaemonSets == 0 {
		w.DaemonSets = 1
	}
	if w.Users > 0 && w.Deputies == 0 {
		w.Deputies = 1
	}
}

// checker keeps the first thing that is wrong, and its place.
type checker struct {
	at  func(path string) string
	err error
}

func (c *checker) require(holds bool, path, format string, args ...any) {
	if c.err == nil && !holds {
		c.err = fmt.Errorf("%s: %s", c.at(path), fmt.Sprintf(format, args...))
	}
}

func (c *checker) requireNumber(path, name string, value, from, to int) {
	c.require(value >= from && value <= to, path, "%s %d: expected %d to %d", name, value, from, to)
}

func (c *checker) requireSpan(path, name string, value scenarios.Duration, from, to time.Duration) {
	d := time.Duration(value)
	c.require(d >= from && d <= to, path, "%s %s: expected %s to %s", name, d, from, to)
}

// Check returns the first thing that is wrong with the plan. at returns the origin of a path such as
// $.workloads[0].every: a place in a file, or a flag.
func (p *Plan) Check(at func(path string) string) error {
	c := &checker{at: at}
	c.requireNumber("$.apiServers", "apiServers", p.APIServers, 1, maxServers)
	c.require(
		slices.Contains([]scenarios.Gate{"", scenarios.GateOn, scenarios.GateOff}, p.Gate),
		"$.gate",
		"gate %q: expected on or off",
		p.Gate,
	)
	c.require(
		slices.Contains([]RBAC{"", LegacyRBAC, ConstrainedRBAC, NoRBAC}, p.RBAC),
		"$.rbac",
		"rbac %q: expected %s, %s or %s",
		p.RBAC,
		LegacyRBAC,
		ConstrainedRBAC,
		NoRBAC,
	)
	c.requireSpan("$.memory", "memory", p.Memory, time.Second, time.Hour)
	c.requireNumber("$.modes", "modes", p.Modes, 1, maxSize)
	c.requireSpan("$.within", "within", p.Within, 100*time.Millisecond, time.Hour)
	p.checkAuthorizer(c)
	c.require(len(p.Workloads) > 0, "$.workloads", "there is no workload: expected nodes, or users of a deputy")
	units := 0
	for i, w := range p.Workloads {
		w.check(c, fmt.Sprintf("$.workloads[%d]", i))
		units += w.units()
	}
	c.require(units <= maxUnits, "$.workloads", "%d agents and users: expected at most %d", units, maxUnits)
	return c.err
}

func (p *Plan) checkAuthorizer(c *checker) {
	a := p.Authorizer
	c.require(slices.Contains(chains(), a.Chain), "$.authorizer.chain", "authorizer %q: expected one of %v", a.Chain, chains())
	c.require(
		a.Answers == AnswerNoOpinion || a.Answers == AnswerAllow,
		"$.authorizer.answers",
		"answers %q: expected %s or %s",
		a.Answers,
		AnswerNoOpinion,
		AnswerAllow,
	)
	c.requireSpan("$.authorizer.allowedTTL", "allowedTTL", a.Allowed, 0, time.Hour)
	c.requireSpan("$.authorizer.deniedTTL", "deniedTTL", a.Denied, 0, time.Hour)
	c.requireNumber("$.authorizer.cacheSize", "cacheSize", a.Size, 1, maxSize)
	c.requireSpan("$.authorizer.checkTakes", "checkTakes", a.Takes, time.Microsecond, 5*time.Second)
}

func (w Workload) check(c *checker, path string) {
	c.require(slices.Contains(oracle.Modes(), w.Mode), path+".mode", "mode %q: expected one of %v", w.Mode, oracle.Modes())
	ofNodes := w.Mode == oracle.AssociatedNode || w.Mode == oracle.ArbitraryNode
	ofUsers := w.Mode == oracle.ServiceAccount || w.Mode == oracle.UserInfo
	c.require(
		!ofNodes || w.Users == 0,
		path+".users",
		"users of a deputy are not impersonated by mode %s: expected nodes, or another mode",
		w.Mode,
	)
	c.require(!ofUsers || w.Nodes == 0, path+".nodes", "nodes are not impersonated by mode %s: expected users, or another mode", w.Mode)
	c.require(w.Nodes > 0 || w.Users > 0, path, "nobody asks: expected nodes, or users of a deputy")
	c.require(w.Nodes == 0 || w.Users == 0, path+".users", "nodes and users are workloads of their own: expected one of both")
	c.requireNumber(path+".nodes", "nodes", w.Nodes, 0, maxNodes)
	c.requireNumber(path+".daemonSets", "daemonSets", w.DaemonSets, 0, 100)
	c.requireNumber(path+".users", "users", w.Users, 0, maxUnits)
	c.requireNumber(path+".groups", "groups", w.Groups, 0, maxValues)
	c.requireNumber(path+".extras", "extras", w.Extras, 0, maxValues)
	c.requireNumber(path+".deputies", "deputies", w.Deputies, 0, maxUnits)
	hasValues := w.Groups > 0 || w.Extras > 0
	c.require(!hasValues || w.Users > 0, path+".groups", "groups and extras are those of a deputy's users: expected users")
	c.require(
		!hasValues || w.Mode != oracle.ServiceAccount,
		path+".groups",
		"mode serviceaccount takes a name alone: expected neither groups nor extras",
	)
	c.require(w.Users == 0 || w.DaemonSets == 0, path+".daemonSets", "DaemonSets are for nodes: expected none with users")
	c.require(w.Users > 0 || w.Deputies == 0, path+".deputies", "deputies act for users: expected users")
	c.require(!w.NameAlone || w.Nodes > 0, path+".nameAlone", "nameAlone is about the group system:nodes: expected nodes")
	c.require(w.ServiceAccounts == profile.Shared || w.ServiceAccounts == profile.PerAgent, path+".serviceAccounts",
		"serviceAccounts %q: expected %s (one for all pods) or %s", w.ServiceAccounts, profile.Shared, profile.PerAgent)
	c.requireSpan(path+".every", "every", w.Every, 10*time.Millisecond, time.Hour)
	c.requireNumber(path+".requests", "requests", w.Requests, 1, maxRequests)
	c.require(
		w.units()*w.Requests <= maxUnits,
		path+".requests",
		"%d different requests of %d agents or users: expected at most %d in all",
		w.Requests,
		w.units(),
		maxUnits,
	)
}
