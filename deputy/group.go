package deputy

import (
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/scenarios"
)

// group is what is tried with one way of impersonation, according to options and seed.
type group struct {
	name      string
	fixture   *fixture
	questions []question
	// people use the deputy at the same time, and each sends so many requests. A proxy knows no other people.
	people   []*Identity
	requests int
	// account is the proxy's own account. It is empty where it is not known, on a cluster that is not ours.
	account string
	// reference means that the reference deputy and agent are tried.
	reference bool
	// cluster is what the reference deputy calls the cluster that it is in front of, and secondClusterName the name of
	// the second one; empty if there is one.
	cluster, secondClusterName string
	// table has the attacks that are tried.
	table []attack
}

// localCluster is the name of the cluster if there is only one.
const localCluster = "local"

// newGroup returns what is tried with one way of impersonation.
func newGroup(o options, name string) *group {
	g := &group{
		name:      name,
		people:    newUsers(o.users),
		requests:  o.requests,
		account:   proxyName,
		reference: o.proxy == nil,
		cluster:   localCluster,
	}
	if len(o.clusters) > 0 {
		g.cluster, g.secondClusterName = o.clusters[0], o.clusters[1]
	}
	askers := newPeople()
	if o.proxy != nil {
		g.people, askers = o.proxy.People, o.proxy.People
	}
	f, random := newFixture(o.seed, askers)
	g.fixture, g.questions = f, f.drawQuestions(random)
	if g.isForeign() { // nothing may be changed there, whatever the proxy makes of a request
		g.account = ""
		g.questions = slices.DeleteFunc(g.questions, func(q question) bool { return q.verb != "get" && q.verb != "list" })
	}
	g.questions = g.questions[:min(o.pairs, len(g.questions))]
	return g
}

// isForeign reports whether the group is tried on a cluster that is not ours.
func (g *group) isForeign() bool { return g.name == existingCluster }

// grants returns the grants on a control plane of ours. A proxy that is not ours may impersonate everybody.
func (g *group) grants() []scenarios.Grant {
	step, reach := 1, []*Identity(nil)
	if g.reference {
		step, reach = everySecondPerson, slices.Concat(g.fixture.people, g.people)
	}
	return slices.Concat(g.fixture.grants, userGrants(g.people, step), proxyGrants(reach, g.name == constrained))
}

// namespaces returns the namespaces that the requests are about.
func (g *group) namespaces() []string { return append(slices.Clone(g.fixture.namespaces), Namespace) }

// newAttackJudge returns a judge of attacks by the given people. isLogged means that the audit log has already shown a
// request.
func (g *group) newAttackJudge(e *attacksEvidence, table []attack, people []*Identity, isLogged bool) *attackJudge {
	j := newAttackJudge(e, table, people, g.account)
	j.reference, j.logged = g.reference, isLogged
	return j
}

// judgements are what came out of a part: one, or one of each of the kinds that distinguish its cases, by their names.
type judgements map[string]*judgement

// judge judges what was seen in a part. isLogged means that the audit log has shown a request in an earlier part. It
// returns an error if the evidence is not of what had to be tried.
func (g *group) judge(part string, e *partEvidence, isLogged bool) (judgements, error) {
	if part == attacksPart {
		return g.judgeAttacks(e.Attacks, isLogged)
	}
	out := newJudgement()
	out.seconds = e.Ended.Sub(e.Began).Seconds()
	var err error
	switch {
	case part == preflightPart && e.Preflight != nil:
		return g.judgePreflight(e)
	case part == auditLogsPart && e.AuditLogs != nil:
		err = e.AuditLogs.judge(out, g, isLogged)
		out.seconds = e.Ended.Sub(e.Began).Seconds() // the attacks run at the same time
	case part == tunnelPart && e.Tunnel != nil:
		e.Tunnel.judge(out)
	case part == revocationPart && e.Revocation != nil:
		return g.judgeRevocation(e)
	default:
		err = fmt.Errorf("there is no evidence of the part %s", part)
	}
	return judgements{"": out}, err
}

// hasTwoClusters reports whether there are two clusters behind the proxy.
func (g *group) hasTwoClusters() bool { return g.secondClusterName != "" }

// judgePreflight judges the pre-flight at each cluster.
func (g *group) judgePreflight(e *partEvidence) (judgements, error) {
	return judgeEachCluster(
		g,
		preflightPart,
		e,
		[]*preflightEvidence{e.Preflight, e.OtherPreflight},
		func(evidence *preflightEvidence, out *judgement) error {
			return evidence.judge(out, g)
		},
	)
}

// judgeRevocation judges at each cluster what the person could still do.
func (g *group) judgeRevocation(e *partEvidence) (judgements, error) {
	return judgeEachCluster(
		g,
		revocationPart,
		e,
		[]*revocationEvidence{e.Revocation, e.OtherRevocation},
		func(evidence *revocationEvidence, out *judgement) error {
			evidence.judge(out, g.people[0], !g.isForeign())
			return nil
		},
	)
}

// judgeEachCluster judges what was seen of a part at each cluster: at the first one, and at the second if there are two.
func judgeEachCluster[E any](g *group, part string, e *partEvidence, evidence []*E, judge func(*E, *judgement) error) (judgements, error) {
	all := judgements{}
	for n, kind := range g.clusterKinds() {
		if evidence[n] == nil {
			return nil, fmt.Errorf("there is no evidence of the part %s at the cluster %s", part, g.secondClusterName)
		}
		out := newJudgement()
		out.seconds = e.Ended.Sub(e.Began).Seconds()
		if err := judge(evidence[n], out); err != nil {
			return nil, err
		}
		all[kind] = out
	}
	return all, nil
}

// judgeAttacks judges the attacks of all kinds. It returns one judgement for each kind.
func (g *group) judgeAttacks(e *attacksEvidence, isLogged bool) (judgements, error) {
	if e == nil {
		return nil, fmt.Errorf("there is no evidence of the part %s", attacksPart)
	}
	out := judgements{}
	err := g.newAttackJudge(e, g.table, g.people, isLogged).judgeAttacks(e, g.table, func(a attack) *judgement {
		if out[a.kind] == nil {
			out[a.kind] = newJudgement()
		}
		return out[a.kind]
	})
	return out, err
}

// showsEvents reports whether an audit event was found in the part.
func (j judgements) showsEvents() bool {
	for _, out := range j {
		if len(out.foundBy) > 0 {
			return true
		}
	}
	return false
}
