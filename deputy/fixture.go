package deputy

import (
	"fmt"
	"math/rand/v2"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/scenarios"
)

// fixture says what is granted to whom. It is made from a seed.
type fixture struct {
	people     []*Identity
	namespaces []string
	grants     []scenarios.Grant // those of the people, and not those of the proxy
}

const (
	// peopleCount is how many people there are. The proxy may not impersonate every sixth of them.
	peopleCount = 12
	spaceCount  = 4
	grantCount  = 60
)

// newPeople returns the people of the pre-flight, if the reference agent is tried.
func newPeople() (people []*Identity) {
	for i := range peopleCount {
		person := impersonatedPerson(fmt.Sprintf("user-%d@corp", i), tierOf(i))
		person.outOfReach = i%6 == 5
		people = append(people, person)
	}
	return people
}

// newFixture draws grants for people. The random numbers that follow are those of the questions.
func newFixture(seed int64, people []*Identity) (*fixture, *rand.Rand) {
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	f := &fixture{people: people}
	for i := range spaceCount {
		f.namespaces = append(f.namespaces, fmt.Sprintf("team-%d", i))
	}
	for range grantCount {
		f.grants = append(f.grants, f.drawGrant(random))
	}
	return f, random
}

// drawGrant returns a random grant: to a user or a tier, in one namespace or in all, for all names or some.
func (f *fixture) drawGrant(random *rand.Rand) scenarios.Grant {
	person := f.people[random.IntN(len(f.people))]
	g := scenarios.Grant{Subject: scenarios.Subject{User: person.Name}}
	if random.IntN(3) == 0 && len(person.Groups) > 0 {
		g.Subject = scenarios.Subject{Group: person.Groups[0]}
	}
	all := sortedVerbs()
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	g.Verbs = all[:1+random.IntN(4)]
	if random.IntN(12) == 0 {
		g.Verbs = []string{"*"}
	}
	k := kinds[random.IntN(len(kinds))]
	g.APIGroups, g.Resources = []string{k.group}, []string{k.fullResource()}
	if random.IntN(2) == 0 && !k.cluster {
		g.Namespace = f.namespaces[random.IntN(len(f.namespaces))]
	}
	if random.IntN(4) == 0 {
		g.Names = []string{objectNames[random.IntN(len(objectNames))]}
	}
	return g
}

// drawQuestions returns all questions, in a random order.
func (f *fixture) drawQuestions(random *rand.Rand) (all []question) {
	for _, person := range f.people {
		for _, verb := range sortedVerbs() {
			for _, k := range kinds {
				all = append(all, f.questionsAbout(person, verb, k)...)
			}
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// questionsAbout returns the questions whether a person may do something to a kind of object, in each namespace and
// about each name.
func (f *fixture) questionsAbout(person *Identity, verb string, k kind) (list []question) {
	namesObject := verbs[verb]
	if k.sub != "" && !namesObject {
		return nil // a subresource belongs to an object
	}
	names, spaces := []string{""}, f.namespaces
	if namesObject {
		names = objectNames
	}
	if k.cluster {
		spaces = []string{""}
	}
	for _, space := range spaces {
		for _, name := range names {
			list = append(list, question{person, verb, k, space, name})
		}
	}
	return list
}

// isGranted reports whether the fixture grants what the question asks. The review and the request are compared with
// that.
func (f *fixture) isGranted(q question) bool { return q.who.isGranted(f.grants, q.attributes()) }

// isGranted reports whether one of the grants allows the person to do something.
func (id *Identity) isGranted(grants []scenarios.Grant, what *authorizationv1.ResourceAttributes) bool {
	return scenarios.Covered(grants, authorizationv1.SubjectAccessReviewSpec{
		User: id.Name, Groups: append([]string{user.AllAuthenticated}, id.Groups...), ResourceAttributes: what,
	})
}
