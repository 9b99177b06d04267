package predict

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/oracle"
)

// generations is how many tokens an agent has in a simulation: one in the beginning, and one after a rollout.
const generations = 2

// group is a workload with everything that a simulation needs of it.
type group struct {
	Workload
	script
	number int
	units  []unit
	// order has the units by when they ask in a period.
	order []int32
	every time.Duration
	// outer and inner are the first numbers of what is remembered of constrained modes. accounts is the first number of
	// the service accounts.
	outer, inner, accounts int32
	asks                   []numbered
}

// numbered is a step with the number of its first question.
type numbered struct {
	step
	first int32
}

// unit is one agent or user.
type unit struct {
	phase time.Duration
	// server is the API server to which it is connected. subject, account and deputy are numbers within the workload.
	server, subject, account, deputy int32
	// place is the node's or the deputy's number, by which it has its server.
	place       int32
	daemonSet   int32
	turn, token int32
}

// numbers is how many numbers were given out.
type numbers struct{ remembered, accounts, questions int32 }

// newGroup spreads a workload over API servers. On each server the agents of a DaemonSet ask at even distances, and so
// do those of a node. All begin within the first period.
func newGroup(number int, w Workload, s script, servers int, n *numbers) *group {
	g := &group{number: number, Workload: w, script: s, every: time.Duration(w.Every)}
	if w.isOfNodes() {
		g.addAgents(servers)
	} else {
		g.addUsers(servers)
	}
	g.order = make([]int32, len(g.units))
	for i := range g.order {
		g.order[i] = int32(i)
	}
	slices.SortStableFunc(g.order, func(a, b int32) int { return cmp.Compare(g.units[a].phase, g.units[b].phase) })
	g.outer = n.take(&n.remembered, g.countOf(ofUnitRequest)*generations)
	g.inner = n.take(&n.remembered, g.countOf(g.innerScope())*generations)
	g.accounts = n.take(&n.accounts, g.countOf(ofAccount))
	for _, st := range s.steps() {
		g.asks = append(g.asks, numbered{st, n.take(&n.questions, g.countOf(st.scope)*generations)})
	}
	return g
}

func (n *numbers) take(from *int32, count int32) int32 {
	first := *from
	*from += count
	return first
}

func (g *group) addAgents(servers int) {
	for node := range g.Nodes {
		server := node % servers
		onServer := share(g.Nodes, servers, server)
		place := (float64(node/servers) + float64(server)/float64(servers)) / float64(onServer)
		for set := range g.DaemonSets {
			u := unit{server: int32(server), place: int32(node), subject: int32(node), daemonSet: int32(set), account: int32(set)}
			if g.ServiceAccounts == profile.PerAgent {
				u.account = int32(node*g.DaemonSets + set)
			}
			u.deputy = int32(node*g.DaemonSets + set)
			u.phase = g.phaseOf(place + float64(set)/float64(g.DaemonSets))
			g.units = append(g.units, u)
		}
	}
}

func (g *group) addUsers(servers int) {
	counts := usersOf(g.Workload, servers)
	perServer := make([]int, servers)
	for user := range g.Users {
		deputy := user % g.Deputies
		server := deputy % servers
		u := unit{server: int32(server), place: int32(deputy), subject: int32(user), deputy: int32(deputy)}
		if g.ServiceAccounts == profile.PerAgent {
			u.account = int32(deputy)
		}
		u.phase = g.phaseOf((float64(perServer[server]) + float64(server)/float64(servers)) / float64(counts[server]))
		perServer[server]++
		g.units = append(g.units, u)
	}
}

// usersOf returns how many users each API server has: those of the deputies that are connected to it.
func usersOf(w Workload, servers int) []int {
	counts := make([]int, servers)
	for deputy := range min(w.Deputies, w.Users) {
		counts[deputy%servers] += share(w.Users, w.Deputies, deputy)
	}
	return counts
}

// share returns how many of n things that are dealt out in turn number i of parts gets.
func share(n, parts, i int) int { return (n - i + parts - 1) / parts }

func (g *group) phaseOf(part float64) time.Duration {
	return time.Duration((part - math.Floor(part)) * float64(g.every))
}

// innerScope returns for whom a success is remembered whatever is asked.
func (g *group) innerScope() scope {
	if g.mode == oracle.AssociatedNode {
		return ofAccount
	}
	return ofUnit
}

// countOf returns how many questions there are of a scope.
func (g *group) countOf(s scope) int32 {
	units, requests := int32(len(g.units)), int32(g.Requests)
	switch s {
	case ofUnitRequest:
		return units * requests
	case ofAccount:
		return int32(g.accountCount())
	case ofDeputyRequest:
		return int32(g.Deputies) * requests
	case ofDeputy:
		return int32(g.Deputies)
	case ofSubjectRequest:
		if g.isOfNodes() {
			return int32(g.Nodes) * requests
		}
		return units * requests
	}
	return units
}

// accountCount returns how many service accounts the workload has.
func (w Workload) accountCount() int {
	switch {
	case w.ServiceAccounts == profile.PerAgent && w.isOfNodes():
		return w.units()
	case w.ServiceAccounts == profile.PerAgent:
		return w.Deputies
	case w.isOfNodes():
		return w.DaemonSets
	}
	return 1
}

// numberIn returns the number of a question of a scope that a unit asks.
func (g *group) numberIn(s scope, index int32, u *unit, request int32, byToken bool) int32 {
	number, requests := index, int32(g.Requests)
	switch s {
	case ofUnitRequest:
		number = index*requests + request
	case ofAccount:
		number = u.account
	case ofDeputyRequest:
		number = u.deputy*requests + request
	case ofDeputy:
		number = u.deputy
	case ofSubjectRequest:
		number = u.subject*requests + request
	}
	if byToken {
		number += u.token * g.countOf(s)
	}
	return number
}
