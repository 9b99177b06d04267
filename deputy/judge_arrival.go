package deputy

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// judgeArrival returns what became of a request according to its event, or what is wrong with that.
func (j *attackJudge) judgeArrival(a attack, r rawRequest, logged loggedEvent) (outcome, wrong string) {
	event := logged.Event
	got, person := arrivingUser(event), j.people[r.Who].rename(a.NameSpelling)
	if wrong := j.checkCluster(r, logged); wrong != "" {
		return "", wrong
	}
	if a.isControl() && j.account == "" && event.ImpersonatedUser != nil {
		j.account = event.User.Username
	}
	switch {
	case reachesWithForeignToken(a, person, event):
		return "", "its own Authorization reached the API server: with a token that is known there somebody else would have arrived"
	case isAnonymous(got):
		return asNobody, ""
	case isRefusedImpersonation(event):
		return refusedByServer, ""
	}
	for _, why := range []string{j.checkNotProxy(event), checkHasIdentity(person, got), checkName(person, got)} {
		if why != "" {
			return "", why
		}
	}
	key := personKey(r.Who, logged.isOfSecondCluster)
	control, hasControl := j.controls[key]
	if a.isControl() && !hasControl {
		j.controls[key] = got
		wrong = j.checkGroups(person, got)
	} else if hasControl && a.NameSpelling == "" {
		wrong = checkLikeControl(got, control)
	} else if hasControl {
		wrong = checkNotAdministrator(got, control)
	}
	if wrong != "" {
		return "", fmt.Sprintf("it was made as %q %s", got.Username, wrong)
	}
	return asPerson, ""
}

// personKey returns the key of a person at one of two clusters. The same person may have other groups at the other
// cluster.
func personKey(whose string, isAtSecondCluster bool) string {
	if isAtSecondCluster {
		return whose + "@" + secondClusterOnly
	}
	return whose
}

// checkCluster demands that a request arrives at the cluster that it is for.
func (j *attackJudge) checkCluster(r rawRequest, logged loggedEvent) string {
	if len(j.clusters) < 2 || r.Cluster == anyCluster {
		return ""
	}
	at := j.clusters[0]
	if logged.isOfSecondCluster {
		at = j.clusters[1]
	}
	isWanted := (r.Cluster == secondClusterOnly) == logged.isOfSecondCluster
	switch {
	case r.Cluster == missingCluster:
		return fmt.Sprintf("it was for a cluster that is not there, and arrived at %q as %q", at, arrivingUser(logged.Event).Username)
	case !isWanted:
		return fmt.Sprintf("it was for the other cluster, and arrived at %q as %q", at, arrivingUser(logged.Event).Username)
	}
	return ""
}

// reachesWithForeignToken reports whether the proxy passed on a token of the attack that no person has. It has to
// replace such a token or to refuse the request.
func reachesWithForeignToken(a attack, person *Identity, event *auditv1.Event) bool {
	isUnknownUser := arrivingUser(event).Username == "" && statusCode(event) == http.StatusUnauthorized
	knowsOtherwise := person.Name != "" && !slices.Contains(person.headerNames(), "Authorization")
	return isUnknownUser && knowsOtherwise && a.hasHeaderText("Authorization: ")
}

// isAnonymous reports whether nobody arrived, which is right for every attack.
func isAnonymous(got authenticationv1.UserInfo) bool {
	return got.Username == "" || got.Username == user.Anonymous
}

// isRefusedImpersonation reports whether the impersonation filter of the API server refused the request. Then nobody
// arrived either.
func isRefusedImpersonation(event *auditv1.Event) bool {
	isUndecided := event.ImpersonatedUser == nil && decisionOf(event) == ""
	return isUndecided && statusCode(event) >= http.StatusBadRequest
}

// checkNotProxy demands that a request is never made as the proxy itself.
func (j *attackJudge) checkNotProxy(event *auditv1.Event) string {
	if event.ImpersonatedUser == nil && event.User.Username == j.account {
		return "it was made as the proxy itself, " + j.account
	}
	return ""
}

// checkHasIdentity demands that a request without an identity does not arrive as somebody.
func checkHasIdentity(person *Identity, got authenticationv1.UserInfo) string {
	if person.Name == "" {
		return fmt.Sprintf("it has no identity, and was made as %q", got.Username)
	}
	return ""
}

// checkName demands that whoever arrives has the name of the person whose credentials were sent.
func checkName(person *Identity, got authenticationv1.UserInfo) string {
	if got.Username != person.Name {
		return fmt.Sprintf("it was made as %q, not as %q", got.Username, person.Name)
	}
	return ""
}

// checkGroups demands that a person who arrives without tricks has the groups that the user named, has no groups that
// only others have, and is not in system:masters.
func (j *attackJudge) checkGroups(person *Identity, got authenticationv1.UserInfo) string {
	const masters = user.SystemPrivilegedGroup
	if slices.Contains(got.Groups, masters) && !slices.Contains(person.Groups, masters) {
		return fmt.Sprintf("with the group %q, which nobody said the person has", masters)
	}
	for _, group := range person.Groups {
		if !slices.Contains(got.Groups, group) {
			return fmt.Sprintf("without the group %q", group)
		}
	}
	if len(person.Groups) == 0 {
		return ""
	}
	for _, group := range got.Groups {
		if !slices.Contains(person.Groups, group) && slices.Contains(j.groups, group) {
			return fmt.Sprintf("with the group %q, which is somebody else's", group)
		}
	}
	return ""
}

// checkNotAdministrator demands that whoever arrives by another spelling of a person's name is in system:masters only
// if the person is. All other groups may be that user's own.
func checkNotAdministrator(got, control authenticationv1.UserInfo) string {
	const masters = user.SystemPrivilegedGroup
	if slices.Contains(got.Groups, masters) && !slices.Contains(control.Groups, masters) {
		return fmt.Sprintf("with the group %q", masters)
	}
	return ""
}

// checkLikeControl demands that a person arrives with the same groups, UID and extra keys as without tricks.
func checkLikeControl(got, control authenticationv1.UserInfo) string {
	extra, controlExtra := slices.Sorted(maps.Keys(got.Extra)), slices.Sorted(maps.Keys(control.Extra))
	for _, difference := range []struct {
		has  string
		what string
	}{
		{"with the group", firstMissing(got.Groups, control.Groups)},
		{"without the group", firstMissing(control.Groups, got.Groups)},
		{"with the extra key", firstMissing(extra, controlExtra)},
		{"with the extra key", strings.Join(smuggledKeys(got), ", ")},
		{"without the extra key", firstMissing(controlExtra, extra)},
	} {
		if difference.what != "" {
			return fmt.Sprintf("%s %q", difference.has, difference.what)
		}
	}
	if got.UID != control.UID {
		return fmt.Sprintf("with the UID %q", got.UID)
	}
	return ""
}

// firstMissing returns the first item of one list that the other does not have, or "". It ignores groups and extra keys
// that only name the credential or say that somebody is authenticated.
func firstMissing(list, other []string) string {
	expected := []string{user.AllAuthenticated, user.CredentialIDKey, serviceaccount.PodNameKey}
	for _, s := range list {
		if !slices.Contains(other, s) && !slices.Contains(expected, s) {
			return s
		}
	}
	return ""
}

// smuggledKeys returns the extra keys with a value that only an attack has.
func smuggledKeys(got authenticationv1.UserInfo) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(got.Extra)) {
		if slices.Contains(got.Extra[key], "smuggled") {
			keys = append(keys, key)
		}
	}
	return keys
}
