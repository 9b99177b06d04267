package advice

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// instead is another request for the same user that differs in one header and that a constrained mode can serve.
type instead struct {
	as *identity
	// change says what has to be done with which header.
	change string
	// adds are the groups that the API server adds by itself, so that the header need not name them. It is empty if the
	// header named one twice.
	adds []string
	// isSameByLegacy means that legacy impersonation gives the same user for it, too.
	isSameByLegacy bool
}

// candidate is a request that differs from another in one header.
type candidate struct {
	as     scenarios.Impersonate
	change string
	adds   []string
}

// findInstead returns another request for the user whom a requestor impersonates, or nil if there is none. It differs
// in Impersonate-Group. No mode adds a UID or extra keys, so without these headers the user would be another one.
func (s *Summary) findInstead(r *requestor, who scenarios.User, impersonation scenarios.Impersonate) *instead {
	want := oracle.Resulting(oracle.Legacy, &impersonation)
	for _, c := range changeGroups(impersonation) {
		if !equalUsers(want, predictConstrained(c.as)) {
			continue
		}
		if other := s.identity(r, who, c.as); other.mode != "" {
			return &instead{other, c.change, c.adds, equalUsers(want, oracle.Resulting(oracle.Legacy, &c.as))}
		}
	}
	return nil
}

// changeGroups returns the requests that differ from one in Impersonate-Group and may give the same user: without the
// header, without a group that the API server adds by itself, and with each group once.
func changeGroups(impersonation scenarios.Impersonate) (all []candidate) {
	if len(impersonation.Groups) == 0 {
		return nil
	}
	addCandidate := func(change string, adds []string, drop func(group string) bool) {
		c := candidate{as: impersonation, change: change, adds: adds}
		c.as.Groups = slices.DeleteFunc(slices.Clone(impersonation.Groups), drop)
		if len(c.as.Groups) == 0 {
			c.as.Groups = nil
		}
		all = append(all, c)
	}
	userWithoutGroups := predictConstrained(scenarios.Impersonate{User: impersonation.User})
	addedGroups := slices.DeleteFunc(slices.Clone(userWithoutGroups.Groups), func(group string) bool {
		return !slices.Contains(impersonation.Groups, group)
	})
	addCandidate("leave out Impersonate-Group", addedGroups, func(string) bool { return true })
	for _, group := range addedGroups {
		addCandidate("leave out Impersonate-Group: "+group, []string{group}, func(g string) bool { return g == group })
	}
	known := sets.New[string]()
	for _, group := range impersonation.Groups {
		if isRepeated := known.Has(group); isRepeated {
			seen := false
			addCandidate("send Impersonate-Group: "+group+" once", nil, func(g string) bool {
				isFurther := g == group && seen
				seen = seen || g == group
				return isFurther
			})
		}
		known.Insert(group)
	}
	return all
}

// predictConstrained returns the user that a constrained mode makes of a request. The modes differ only in the names
// that they are for.
func predictConstrained(impersonation scenarios.Impersonate) scenarios.User {
	return oracle.Resulting(oracle.UserInfo, &impersonation)
}

// String returns which header has to be changed, and why the user stays the same. It is empty if there is no such
// request.
func (i *instead) String() string {
	if i == nil {
		return ""
	}
	adds := strings.Join(
		slices.DeleteFunc(slices.Clone(i.adds), func(group string) bool { return group == user.AllAuthenticated && len(i.adds) > 1 }),
		" and ",
	)
	switch {
	case adds == "":
		return i.change + ": the second one changes nothing"
	case i.isSameByLegacy:
		return fmt.Sprintf("%s: mode %s adds %s by itself, and so does legacy impersonation", i.change, i.as.mode, adds)
	}
	return fmt.Sprintf(
		"%s once no API server has the gate off: mode %s adds %s by itself, legacy impersonation does not",
		i.change,
		i.as.mode,
		adds,
	)
}

// equalUsers reports whether two users are the same to an authorizer. The order of groups does not matter.
func equalUsers(a, b scenarios.User) bool {
	a.Groups, b.Groups = sets.List(sets.New(a.Groups...)), sets.List(sets.New(b.Groups...))
	return a.Render() == b.Render()
}
