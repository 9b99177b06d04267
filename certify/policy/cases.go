package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// Case is what is granted and asked to find one way to be wrong. What the policy says is right.
type Case struct {
	Reason  string // the name of a wrong decision
	Class   string // the class of the relation, if the case is about one
	Broad   bool   // a mistake that also shows in other cases of the same attribute
	Paired  bool   // two reviews at a time differ in one attribute, and in the decision: they are also asked at the same time
	Grants  []scenarios.Grant
	Reviews []spec // the reviews, in order
}

// caseBuilder makes the cases of a seed.
type caseBuilder struct {
	*tables
	random    *rand.Rand
	seed      int64
	nameCount int
	out       []Case
}

var casesBySeed sync.Map // by seed, because the policy and the plan need the same cases

// Cases returns all cases of a seed. Those of relations are made by addRelation. The other functions called add… are
// in implied.go (what does not follow from a grant), wellknown.go (near misses, names that code may know, selectors),
// requestors.go and own.go (who asks), and pairs.go (reviews at the same time).
func Cases(seed int64) []Case {
	if cached, ok := casesBySeed.Load(seed); ok {
		return cached.([]Case)
	}
	d := &caseBuilder{tables: loadTables(), random: Random(seed, "policy"), seed: seed}
	for _, a := range Attributes() {
		for _, r := range d.Relations {
			if a.compares(r) {
				d.addRelation(a, r)
			}
		}
	}
	for _, a := range Attributes()[:3] {
		a.isOnPath = true
		for _, r := range d.Relations {
			r.Pairs = [][2]string{r.Pairs[0], r.Pairs[d.random.IntN(len(r.Pairs))]}
			d.addRelation(a, r)
		}
	}
	d.addImplied()
	d.addSubresourceVerbs()
	d.addNearMisses()
	d.addWellKnownNames()
	d.addSelectors()
	d.addSeparations()
	d.addRequestors()
	d.addPairs()
	casesBySeed.Store(seed, d.out)
	return d.out
}

// newName returns a name that nothing else has. It looks like a name that people use.
func (d *caseBuilder) newName() string {
	words := []string{"app", "data", "dev", "infra", "ops", "web", "shop", "pay", "mail", "blue", "team", "edge"}
	d.nameCount++
	return words[d.nameCount%len(words)] + "-" + scenarios.Suffix(d.seed, "certify", "relation", fmt.Sprint(d.nameCount))
}

// add appends a case, unless it asks nothing because the attribute cannot have its values.
func (d *caseBuilder) add(c Case) {
	if len(c.Reviews) > 0 {
		d.out = append(d.out, c)
	}
}

// setting has the values of the other attributes in a case.
type setting struct {
	user, namespace, path string
	object
	// verbs has one verb for each side, and resources one resource. What is granted on one side is not granted on the
	// other.
	verbs, resources [2]string
}

// drawSetting draws the other attributes at random, so that a comparison that is wrong only for some verbs is found with
// some seed.
func (d *caseBuilder) drawSetting(a Attribute) setting {
	verbs := [][2]string{
		{"get", "delete"},
		{"list", "create"},
		{"update", "watch"},
		{"patch", "get"},
		{"impersonate", "get"},
		{"use", "bind"},
		{"impersonate:user-info", "impersonate:serviceaccount"},
		{"impersonate-on:user-info:list", "impersonate-on:arbitrary-node:get"},
	}
	objects := []object{
		{"", "pods", "", ""},
		{"apps", "deployments", "", ""},
		{"batch", "jobs", "", ""},
		{"authentication.k8s.io", "users", "", ""},
		{"", "serviceaccounts", "", ""},
	}
	s := setting{
		user:      d.newName(),
		namespace: d.newName(),
		path:      "/" + d.newName(),
		verbs:     verbs[d.random.IntN(len(verbs))],
		object:    objects[d.random.IntN(len(objects))],
	}
	s.resources = [2]string{s.Resource, "secrets"}
	if a.Name == "subresource" {
		s.Resource, s.resources[0] = subresourceParent, subresourceParent
	}
	if a.Name == "extra-value" {
		s.object, s.verbs, s.namespace = extraValues, [2]string{"impersonate", "impersonate:user-info"}, ""
	}
	if d.random.IntN(4) == 0 && a.Name != "namespace" {
		s.namespace = ""
	}
	return s
}

// newGrant returns a grant of everything on one side except the given attributes, which are added to it later.
func (s setting) newGrant(side int, except ...Attribute) scenarios.Grant {
	isLeftOut := func(name string) bool {
		return slices.ContainsFunc(except, func(a Attribute) bool { return a.Name == name })
	}
	g := scenarios.Grant{Subject: scenarios.Subject{User: s.user}}
	if !isLeftOut("verb") {
		g.Verbs = []string{s.verbs[side]}
	}
	if except[0].isOnPath {
		if !isLeftOut("path") && !isLeftOut("path-below") {
			g.NonResourceURLs = []string{s.pathOf(side, isLeftOut("verb"))}
		}
		return g
	}
	if !isLeftOut("namespace") {
		g.Namespace = s.namespace
	}
	if !isLeftOut("api-group") {
		g.APIGroups = []string{s.Group}
	}
	switch {
	case isLeftOut("resource"), isLeftOut("subresource"):
	case isLeftOut("verb") && len(except) == 1:
		g.Resources = []string{s.resources[side]}
	default:
		g.Resources = []string{s.Resource}
	}
	return g
}

// pathOf returns the path that is asked about. Where the verb is compared, it is another path on each side.
func (s setting) pathOf(side int, verb bool) string {
	if verb && side == 1 {
		return s.path + "-other"
	}
	return s.path
}

// newReview returns a review of what is granted on one side, apart from the attribute.
func (s setting) newReview(a Attribute, side int, name string) spec {
	out := spec{User: s.user, Groups: []string{"system:authenticated", "staff"}}
	verb, resource := s.verbs[side], s.Resource
	if a.Name == "verb" {
		resource = s.resources[side]
	}
	if a.isOnPath {
		out.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: verb, Path: s.pathOf(side, a.Name == "verb")}
	} else {
		resource, sub, _ := strings.Cut(resource, "/")
		out.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb:        verb,
			Group:       s.Group,
			Version:     "v1",
			Resource:    resource,
			Subresource: sub,
			Namespace:   s.namespace,
			Name:        name,
		}
	}
	if a.Name == "groups" {
		out.User = name // the group decides, whoever is in it
	}
	return out
}

// perGrant is how many values a grant has if the attribute can have several.
const perGrant = 6

// addRelation adds the case of a relation. Each pair of strings is granted twice: one string on one side, and the other
// string on the other side. So a cache meets what is allowed first on one side, and what is not on the other.
func (d *caseBuilder) addRelation(a Attribute, r Relation) {
	c := Case{Reason: a.Name + "-" + r.Class, Class: r.Class}
	if c.Broad = r.Class == "ignored"; c.Broad {
		c.Reason = "ignores-" + a.Name
	}
	size := perGrant
	if a.isSingle {
		size = 1
	}
	for chunk := range slices.Chunk(r.Pairs, size) {
		s := d.drawSetting(a)
		p := pairing{caseBuilder: d, attribute: a, setting: s, grants: [2]scenarios.Grant{s.newGrant(0, a), s.newGrant(1, a)}}
		for _, pair := range chunk {
			p.addPair(pair)
		}
		c.Reviews = append(c.Reviews, p.reviews...)
		for side := range p.grants {
			if p.grantedCount[side] > 0 {
				c.Grants = append(c.Grants, p.grants[side])
			}
		}
	}
	if len(c.Reviews) > 0 {
		d.grantBoth(&c, a, r)
	}
	d.add(c)
}

// pairing has what is granted on the two sides for some pairs, and what is asked about it.
type pairing struct {
	*caseBuilder
	attribute Attribute
	setting   setting
	grants    [2]scenarios.Grant
	// grantedCount is how many values are granted on each side.
	grantedCount [2]int
	reviews      []spec
}

// newNameFor returns a new name that the attribute can have.
func (d *caseBuilder) newNameFor(a Attribute) string {
	if strings.HasPrefix(a.Name, "path") {
		return "/" + d.newName()
	}
	return d.newName()
}

// addPair grants the strings of a pair, and asks about both on each side. It does nothing if a review cannot have them.
func (p *pairing) addPair(pair [2]string) {
	a, name := p.attribute, p.newNameFor(p.attribute)
	values := [2]string{Form(pair[0], name), Form(pair[1], name)}
	canAsk := a.canAskFor(values[0]) && a.canAskFor(values[1])
	canGrant := [2]bool{a.canGrant(pair[0], values[0]), a.canGrant(pair[1], values[1])}
	if !canAsk {
		return
	}
	for side, v := range values {
		if canGrant[side] {
			p.grantAndAsk(side, v, values[1-side])
		}
	}
}

// grantAndAsk grants a string on one side, and asks about it and about the other string.
func (p *pairing) grantAndAsk(side int, v, other string) {
	a := p.attribute
	a.addToGrant(&p.grants[side], v)
	p.grantedCount[side]++
	one := p.setting.newReview(a, side, p.newName())
	two := *one.DeepCopy()
	if p.random.IntN(2) != 0 {
		v, other = other, v
	}
	a.setInReview(&one, v)
	a.setInReview(&two, other)
	p.reviews = append(p.reviews, one, two)
}

// grantBoth grants the same to both strings of a pair. An authorizer that stores grants under a key which is the same
// for both loses one of them.
func (d *caseBuilder) grantBoth(c *Case, a Attribute, r Relation) {
	s, name := d.drawSetting(a), d.newNameFor(a)
	for _, form := range r.Pairs[0] {
		if v := Form(form, name); a.canGrant(form, v) {
			g, review := s.newGrant(0, a), s.newReview(a, 0, d.newName())
			a.addToGrant(&g, v)
			a.setInReview(&review, v)
			c.Grants, c.Reviews = append(c.Grants, g), append(c.Reviews, review)
		}
	}
}
