package policy

import (
	"cmp"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// addNearMisses adds one grant, with all its attributes, for each verb and for each object that code may know by name,
// and asks about what differs from it in one attribute. A mistake that concerns a single verb or resource shows nowhere
// else. On one side the granted review is asked first, and on the other side last, because of caches.
func (d *caseBuilder) addNearMisses() {
	c, everything := Case{Reason: "overlooked-for-one"}, d.newName()
	objects, verbs := slices.Concat(d.Resources, d.OpenToEverybody, d.WellKnownRights, d.Objects), slices.Clone(d.Verbs)
	for _, mode := range d.Modes {
		verbs = append(verbs, "impersonate:"+mode)
		for _, action := range d.Actions {
			verbs = append(verbs, "impersonate-on:"+mode+":"+action)
		}
	}
	d.random.Shuffle(len(verbs), func(i, j int) { verbs[i], verbs[j] = verbs[j], verbs[i] })
	c.Grants = append(c.Grants, newGrant(everything, "*", object{Group: "*", Resource: "*"}, ""))
	for i := range max(len(objects), len(verbs)) {
		o, verb := objects[i%len(objects)], verbs[i%len(verbs)]
		sub := cmp.Or(o.Subresource, "status")
		for side := range 2 {
			right := newReview(d.newName(), verb, o, [2]string{d.newName(), "default"}[side], d.newName())
			a, team := right.ResourceAttributes, d.newName()
			member := *right.DeepCopy()
			member.User, member.Groups = d.newName(), append(member.Groups, team)
			withoutTeam := *member.DeepCopy()
			withoutTeam.Groups = []string{"system:authenticated"}
			g := newGrant(right.User, verb, o, a.Namespace, a.Name)
			c.Grants = append(c.Grants, g)
			g.Subject = scenarios.Subject{Group: team}
			c.Grants = append(c.Grants, g)
			if misses := nearMisses(right, sub); side == 0 {
				c.Reviews = append(append(c.Reviews, right, member, withoutTeam), misses...)
			} else {
				c.Reviews = append(append(c.Reviews, misses...), withoutTeam, member, right)
			}
			right.User = everything
			c.Reviews = append(c.Reviews, right)
			o.Subresource = "" // on the other side the subresource is asked about, and not granted
		}
	}
	d.add(c)
}

// nearMisses returns reviews that differ from a review in one attribute of what is asked about.
func nearMisses(s spec, sub string) (out []spec) {
	for _, a := range Attributes() {
		forms := map[string][]string{
			"api-group":   {"{other}", ""},
			"resource":    {"{other}"},
			"subresource": {sub, ""},
			"name":        {"{other}", "", "{upper}", "{}x", "{}.x"},
			"namespace":   {"{other}", ""},
		}
		v, _ := a.value(s)
		for _, form := range forms[a.Name] {
			if spelling := Form(form, v); spelling != v {
				variant := s.DeepCopy()
				a.setInReview(variant, spelling)
				out = append(out, *variant)
			}
		}
	}
	return out
}

// addWellKnownNames adds the cases about names that everybody knows. They are granted something, or are names of what is
// granted, and must be treated like any other name.
func (d *caseBuilder) addWellKnownNames() {
	c, user, group, namespace := Case{Reason: "shortcut-for-a-name"}, d.newName(), d.newName(), d.newName()
	member, impersonator := newGrant("", "get", pods, namespace), newGrant(user, "impersonate", object{}, "")
	member.Subject = scenarios.Subject{Group: group}
	impersonator.Verbs, impersonator.Resources = []string{"impersonate", "impersonate:user-info"}, []string{"users", "groups"}
	c.Grants = []scenarios.Grant{member, impersonator, newGrant(user, "get", pods, namespace), newPathGrant(user, "get", "*")}
	withGroup := func(s spec, group string) spec {
		s.Groups = []string{"staff", group}
		return s
	}
	for _, name := range d.Users {
		c.Reviews = append(c.Reviews,
			withGroup(newReview(name, "get", pods, namespace, ""), group),
			newReview(user, impersonator.Verbs[len(c.Reviews)%2], object{Resource: "users"}, "", name),
		)
	}
	for _, name := range d.Groups {
		c.Reviews = append(c.Reviews,
			withGroup(newReview(user, "get", pods, namespace, ""), name),
			newReview(user, impersonator.Verbs[len(name)%2], object{Resource: "groups"}, "", cmp.Or(name, "system:masters")),
		)
	}
	for _, path := range d.Paths {
		if strings.HasPrefix(path, "/") {
			c.Reviews = append(c.Reviews, newPathReview(user, "get", path))
		}
	}
	d.add(c)
}

// addSelectors adds the cases about selectors. They narrow what is asked, and grant nothing, whatever they select.
func (d *caseBuilder) addSelectors() {
	c := Case{Reason: "selectors-change-the-decision"}
	user := d.newName()
	oneNameUser := d.newName()
	namespace := d.newName()
	node := "system:node:" + d.newName()
	verbs := []string{
		"list",
		"watch",
		"deletecollection",
		"impersonate-on:user-info:list",
		"impersonate-on:user-info:watch",
		"impersonate-on:user-info:deletecollection",
	}
	all, one := newGrant(user, "", pods, namespace), newGrant(oneNameUser, "", pods, namespace, "one")
	all.Verbs, one.Verbs = verbs, verbs
	getter := d.newName() // may get each object, but a list of objects with one name is not a get
	c.Grants = []scenarios.Grant{all, one, newGrant(getter, "get", pods, namespace)}
	type requirement = metav1.FieldSelectorRequirement
	is := metav1.FieldSelectorOpIn
	not := metav1.FieldSelectorOpNotIn
	has := metav1.FieldSelectorOpExists
	lacks := metav1.FieldSelectorOpDoesNotExist
	for i, fields := range [][]requirement{
		{{Key: "metadata.name", Operator: is, Values: []string{"one"}}}, {{Key: "metadata.name", Operator: not, Values: []string{"one"}}},
		{{Key: "metadata.namespace", Operator: is, Values: []string{namespace}}},
		{{Key: "spec.nodeName", Operator: is, Values: []string{strings.TrimPrefix(node, "system:node:")}}},
		{{Key: "status.phase", Operator: not, Values: []string{"Failed"}}, {Key: "spec.nodeName", Operator: is, Values: []string{""}}},
		{{Key: "spec.owner", Operator: is, Values: []string{getter}}},
	} {
		labels := [][]metav1.LabelSelectorRequirement{
			{{Key: "app", Operator: metav1.LabelSelectorOperator(is), Values: []string{"web"}}},
			{{Key: "app", Operator: metav1.LabelSelectorOperator(is), Values: []string{"web", "db"}}},
			{{Key: "app", Operator: metav1.LabelSelectorOperator(not), Values: []string{"web", "db"}}},
			{{Key: "example.com/a", Operator: metav1.LabelSelectorOperator(has)}},
			{{Key: "app", Operator: metav1.LabelSelectorOperator(has)}, {Key: "b", Operator: metav1.LabelSelectorOperator(lacks)}, {Key: "c", Operator: metav1.LabelSelectorOperator(not), Values: []string{"d"}}},
			{{Key: "owner", Operator: metav1.LabelSelectorOperator(is), Values: []string{getter}}, {Key: "team", Operator: metav1.LabelSelectorOperator(is), Values: []string{"system:authenticated"}}},
		}[i]
		for _, number := range []int{1, 2, 3} {
			narrow := func(s spec) {
				if number&1 != 0 {
					s.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: fields}
				}
				if number&2 != 0 {
					s.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: labels}
				}
				c.Reviews = append(c.Reviews, s)
			}
			for _, verb := range verbs {
				narrow(newReview(user, verb, pods, namespace, ""))
			}
			verb := verbs[i]
			narrow(newReview(oneNameUser, verb, pods, namespace, ""))
			narrow(newReview(oneNameUser, verb, pods, namespace, "one"))
			narrow(newReview(getter, verb, pods, namespace, ""))
			narrow(newReview(user, verb, pods, "", ""))
			narrow(newReview(node, verb, pods, namespace, ""))
			narrow(newReview(node, verb, pods, "", ""))
		}
	}
	d.add(c)
}
