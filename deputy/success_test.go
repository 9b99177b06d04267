package deputy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// anyGroup is the success with one more group, which nobody else has.
const anyGroup = "with one group more"

// successes are what attacks are aimed at, by the user who arrives instead of the person. nil is the proxy itself.
func successes(person, other *Identity) map[string]*authenticationv1.UserInfo {
	return map[string]*authenticationv1.UserInfo{
		"as another person":      arriving(other.Name),
		"as an administrator":    arriving("kubernetes-admin", "system:masters"),
		"in system:masters":      arriving(person.Name, "system:masters"),
		anyGroup:                 arriving(person.Name, "dev"),
		"as the proxy":           nil,
		"as somebody of no name": arriving("nobody-knows"),
	}
}

func arriving(name string, groups ...string) *authenticationv1.UserInfo {
	return &authenticationv1.UserInfo{Username: name, Groups: append(groups, "system:authenticated")}
}

// blindSpots are the successes that no event could show, with the reason. There may be no others.
var blindSpots = map[string]string{
	"a name in another spelling, with one group more": "the groups of a person whose name is spelled otherwise are not compared: whoever that is may be somebody else to a proxy",
}

// TestSuccessIsNoticed lets each request of each attack succeed in each way, and expects that the judge finds it. The
// requests reach their subject (TestAttacksReachTheSubject). If a subject that is broken in exactly that way obeyed,
// this is what the API server would log.
func TestSuccessIsNoticed(t *testing.T) {
	table := attacksOf(func(string) bool { return true })
	people := []*Identity{
		{Name: "alice", headers: []header{{sessionHeader, "alice"}}},
		{Name: "bob", headers: []header{{sessionHeader, "bob"}}},
	}
	cast, blind, judged := senders(people), map[string]bool{}, 0
	for n, a := range table {
		for i, r := range a.Requests {
			person := cast[r.Who].rename(a.NameSpelling)
			other := cast[senderOther]
			if person.Name == other.Name {
				other = cast[senderMe]
			}
			mayArrive := r.Who != senderNobody && r.Cluster != missingCluster
			if mayArrive && isSuccessNoticed(t, table, people, n, i, arriving(person.Name), false) {
				t.Errorf("%s (%s), request %d: it is a failure if it arrives as the person", a.Name, a.kind, i+1)
			}
			if r.Cluster != anyCluster && !isSuccessNoticed(t, table, people, n, i, arriving(person.Name), true) {
				t.Errorf("%s (%s), request %d: nobody notices that it arrives at the wrong cluster", a.Name, a.kind, i+1)
			}
			ways := successes(person, other)
			for _, way := range slices.Sorted(maps.Keys(ways)) {
				if a.isControl() && way == anyGroup { // the controls show which groups a person has
					continue
				}
				judged++
				if isSuccessNoticed(t, table, people, n, i, ways[way], false) {
					continue
				}
				if spot := "a name in another spelling, " + way; a.NameSpelling != "" && blindSpots[spot] != "" {
					blind[spot] = true
					continue
				}
				t.Errorf("%s (%s), request %d: nobody notices that it was made %s", a.Name, a.kind, i+1, way)
			}
		}
	}
	for spot := range blindSpots {
		if !blind[spot] {
			t.Errorf("%s is found in every attack, so it is not a blind spot any more", spot)
		}
	}
	t.Logf("%d successes of %d attacks", judged, len(table))
}

const proxyAccount = "system:serviceaccount:proxies:proxy"

// logArrival returns the audit event of a request that arrived as somebody, and the event's ID. nil is the proxy
// itself.
func logArrival(t *testing.T, as *authenticationv1.UserInfo, attack, request int) (raw json.RawMessage, id string) {
	t.Helper()
	id = fmt.Sprintf("%d-%d", attack, request)
	reason := `RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "readers" to Group "system:authenticated"`
	if as != nil && slices.Contains(as.Groups, "system:masters") {
		reason = ""
	}
	raw, err := json.Marshal(&auditv1.Event{
		AuditID: types.UID(id), Verb: "list", User: *arriving(proxyAccount), ImpersonatedUser: as,
		RequestURI:     podsIn(Namespace) + "?" + markerOf("az", attack, request+1),
		ResponseStatus: &metav1.Status{Code: 200},
		Annotations:    map[string]string{scenarios.DecisionAnnotation: "allow", "authorization.k8s.io/reason": reason},
	})
	if err != nil {
		t.Fatal(err)
	}
	return raw, id
}

// isSuccessNoticed reports whether an attack fails if one of its requests arrives as a user (nil is the proxy itself)
// and, if it is misplaced, at the wrong one of two clusters. All other requests of all attacks arrive as those who sent
// them.
func isSuccessNoticed(
	t *testing.T,
	table []attack,
	people []*Identity,
	number, request int,
	as *authenticationv1.UserInfo,
	misplaced bool,
) bool {
	t.Helper()
	cast := senders(people)
	ofClusters := attacksOf(func(kind string) bool { return kind == clustersKind })
	chosen := []attack{table[0], table[1], ofClusters[0], ofClusters[1]} // the controls of the two people at two clusters
	tried := slices.IndexFunc(chosen, func(a attack) bool { return a.Name == table[number].Name })
	if tried < 0 {
		tried, chosen = len(chosen), append(chosen, table[number])
	}
	e := &attacksEvidence{destination: destination{Run: "az", Clusters: []string{"east", "west"}}}
	for n, a := range chosen {
		isTried := n == tried
		seen := attackEvidence{Began: time.Unix(1, 0), Ended: time.Unix(2, 0)}
		for i, r := range a.Requests {
			whom := arriving(cast[r.Who].rename(a.NameSpelling).Name)
			isChanged := isTried && i == request
			if isChanged {
				whom = as
			}
			isRefused := r.Who == senderNobody || r.Cluster == missingCluster
			if isRefused && !isChanged { // refused by the proxy
				seen.Answers = append(seen.Answers, reply{Code: 401})
				continue
			}
			raw, id := logArrival(t, whom, n, i)
			isMisplaced := isChanged && misplaced
			if (r.Cluster == secondClusterOnly) != isMisplaced {
				seen.SecondClusterEvents = append(seen.SecondClusterEvents, raw)
			} else {
				seen.Events = append(seen.Events, raw)
			}
			seen.Answers = append(seen.Answers, reply{Code: 200, AuditID: id, Kind: "PodList"})
		}
		e.Attacks = append(e.Attacks, seen)
	}
	out := newJudgement()
	err := newAttackJudge(e, chosen, people, proxyAccount).judgeAttacks(e, chosen, func(a attack) *judgement {
		if a.Name == table[number].Name {
			return out
		}
		return newJudgement()
	})
	if err != nil {
		t.Fatalf("%s: %v", table[number].Name, err)
	}
	return len(out.failures) > 0
}
