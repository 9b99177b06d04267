package deputy

import (
	"cmp"
	"fmt"
	"path"
	"sync"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// plan has a group for each way of impersonation. Each group has a case for each part, and one for each kind of attack.
type plan struct {
	options options
	groups  []*group
	cases   []product.Case
	refs    map[string]caseRef // by the IDs of cases

	mu     sync.Mutex
	judged map[string]judgements // by the keys of parts
}

// caseRef is the subject of a case.
type caseRef struct {
	group *group
	part  string
	// kind is that of attacks, or in a part that is tried at each of two clusters the name of the second. It is empty
	// otherwise.
	kind string
}

// partKey returns the key of the evidence of a part.
func partKey(g *group, part string) string { return g.name + "/" + part }

func targetKey(group string) string  { return group + "/target" }
func problemKey(group string) string { return group + "/problem" }

// newPlan makes the cases of all parts, for each way of impersonation.
func newPlan(o options) *plan {
	p := &plan{options: o, refs: map[string]caseRef{}, judged: map[string]judgements{}}
	for _, way := range o.ways() {
		g := newGroup(o, way)
		p.groups = append(p.groups, g)
		for _, part := range o.existingParts() {
			for _, kind := range g.kindsOf(part) {
				p.addCase(caseRef{group: g, part: part, kind: kind}, path.Join(part, kind))
			}
		}
	}
	p.chooseAttacks()
	return p
}

// kindsOf returns what distinguishes the cases of a part.
func (g *group) kindsOf(part string) (names []string) {
	switch part {
	case attacksPart:
		for _, k := range attackKinds() {
			if k.Kind != clustersKind || g.hasTwoClusters() {
				names = append(names, k.Kind)
			}
		}
		return names
	case preflightPart, revocationPart:
		return g.clusterKinds()
	}
	return []string{""}
}

// clusterKinds returns what distinguishes the cases of a part that is tried at each cluster: nothing at the first one,
// and the name of the second.
func (g *group) clusterKinds() []string {
	if !g.hasTwoClusters() {
		return []string{""}
	}
	return []string{"", g.secondClusterName}
}

func (p *plan) addCase(ref caseRef, name string) {
	labels := []string{"sig-auth", ref.part}
	if ref.group.name == constrained {
		labels = append(labels, "FeatureGate:"+server.GateName)
	}
	c := product.NewCase(ref.group.name, name, scenarios.Core, labels...)
	if !p.options.isSelected(ref.part) {
		c.NotRun = &product.NotRun{Cause: reports.CauseUser, Why: "not in --parts"}
	}
	p.cases = append(p.cases, c)
	p.refs[c.ID] = ref
}

// Cases implements product.Plan.
func (p *plan) Cases() []product.Case { return p.cases }

// Select implements product.Plan. The controls are kept if any attack is, because without them no attack can be judged.
func (p *plan) Select(leaveOut func(product.Case) string) {
	for i, c := range p.cases {
		if c.NotRun != nil {
			continue
		}
		if why := leaveOut(c); why != "" {
			p.cases[i].NotRun = &product.NotRun{Cause: reports.CauseUser, Why: why}
		}
	}
	for i, c := range p.cases {
		if ref := p.refs[c.ID]; ref.kind == controlsKind && p.isPartRun(ref.group, ref.part) {
			p.cases[i].NotRun = nil
		}
	}
	p.chooseAttacks()
}

// chooseAttacks gives each group the attacks of the cases that are run.
func (p *plan) chooseAttacks() {
	for _, g := range p.groups {
		selected := map[string]bool{}
		for _, c := range p.cases {
			ref := p.refs[c.ID]
			isAttack := ref.group == g && ref.part == attacksPart
			if isAttack && c.NotRun == nil {
				selected[ref.kind] = true
			}
		}
		g.table = attacksOf(func(kind string) bool { return selected[kind] })
	}
}

// isPartRun reports whether a case of a part is run.
func (p *plan) isPartRun(g *group, part string) bool { return len(p.casesOf(g, part)) > 0 }

// casesOf returns the IDs of the cases of a part that are run.
func (p *plan) casesOf(g *group, part string) (ids []string) {
	for _, c := range p.cases {
		ref := p.refs[c.ID]
		isOfPart := ref.group == g && ref.part == part
		if isOfPart && c.NotRun == nil {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// partsOf returns the parts of a group that have a case which is run, in the order in which they run.
func (p *plan) partsOf(g *group) (parts []string) {
	for _, part := range p.options.existingParts() {
		if p.isPartRun(g, part) {
			parts = append(parts, part)
		}
	}
	return parts
}

// Judge implements product.Plan.
func (p *plan) Judge(id string, view record.View) reports.Result {
	ref := p.refs[id]
	key := partKey(ref.group, ref.part)
	if !view.Has(key) {
		return missingEvidence(ref.group.name, view)
	}
	part, err := p.judgePart(ref.group, ref.part, view)
	if err != nil {
		return reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameHarness, Reason: err.Error()}
	}
	r := part[ref.kind].result()
	r.Evidence = []string{view.EvidenceFile(key)}
	return r
}

// missingEvidence returns the verdict on a case without evidence. If something broke, the verdict says what.
func missingEvidence(group string, view record.View) reports.Result {
	r := reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameEnvironment, Reason: "there is no evidence of it"}
	if problem, err := record.Read[problemEvidence](view, problemKey(group)); err == nil {
		r.Reason = cmp.Or(problem.Problem, r.Reason)
	}
	return r
}

// judgePart judges a part as a whole, once.
func (p *plan) judgePart(g *group, part string, view record.View) (judgements, error) {
	key := partKey(g, part)
	p.mu.Lock()
	judged := p.judged[key]
	p.mu.Unlock()
	if judged != nil {
		return judged, nil
	}
	logged, err := p.hasLogShownEvents(g, part, view)
	if err != nil {
		return nil, err
	}
	e, err := record.Read[partEvidence](view, key)
	if err != nil {
		return nil, err
	}
	out, err := g.judge(part, e, logged)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judged[key] = out
	return out, nil
}

// hasLogShownEvents reports whether the audit log has shown a request in an earlier part.
func (p *plan) hasLogShownEvents(g *group, part string, view record.View) (bool, error) {
	for _, earlierPart := range p.partsOf(g) {
		if earlierPart == part {
			break
		}
		if !view.Has(partKey(g, earlierPart)) {
			continue
		}
		out, err := p.judgePart(g, earlierPart, view)
		if err != nil {
			return false, err
		}
		if out.showsEvents() {
			return true, nil
		}
	}
	return false, nil
}
