package deputy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/internal/seq"
)

// sessions returns people with the header by which the proxies of these tests know them.
func sessions(names ...string) (all []*Identity) {
	for _, name := range names {
		all = append(all, &Identity{Name: name, headers: []header{{sessionHeader, name}}})
	}
	return all
}

// TestProxies tries proxies of ours: the reference, which has to pass, and some that are wrong in one way each.
func TestProxies(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	ctx := context.Background()
	people := sessions("alice@corp", "bob@corp")
	p, err := startPlane(ctx, target(t), slices.Concat(userGrants(people, 1), proxyGrants(nil, false)), []string{Namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop() })
	all := proxies(t, p)
	faulty := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return all[name].finds == "" })
	for _, name := range append(sample.Some(5, faulty), "reference", "names nobody") {
		c := all[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			ep, err := p.serve(ctx, c.handler, people)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ep.close() }()
			out := tryAttacks(t, ep, false)
			t.Log(out.summaryLine())
			e, err := ep.sendForEverybody(ctx, 20)
			if err != nil {
				t.Fatal(err)
			}
			judgeInto(t, out, e, requestsOfEverybody(people, 20, false), people, proxyName, false)
			for _, f := range out.findings {
				t.Logf("%s: %s", f.attack, f.arrived)
			}
			isWrong := !finds(out, c.finds)
			if c.finds == "" {
				isWrong = len(out.failures) > 0 || out.outcomes[asPerson] == 0
			}
			if isWrong || out.inconclusive != "" {
				t.Errorf("%q, and it should be %q; %s", out.failures, c.finds, out.inconclusive)
			}
		})
	}
}

// TestProbeReportsOtherAnswers checks that an answer which is not one of a Kubernetes API is reported before anything is tried.
func TestProbeReportsOtherAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"html": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<!DOCTYPE html><title>Hello</title>"))
		}, "answered 200 with HTML, not by a Kubernetes API: --api-prefix"},
		"login": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://login.example/", http.StatusFound)
		}, "redirects"},
		"unknown": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who?", http.StatusUnauthorized) }, `the proxy does not know --identity alice: it answers 401: "who?`},
		"silent":  {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "did not answer within 100ms (--timeout)"},
		"other":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"hello": 1}`)) }, "is not a Kubernetes API"},
		"lists": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"kind": "PodList", "apiVersion": "v1"}`))
		}, ""},
		"forbidden": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1"}`))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.answer)
			defer server.Close()
			p := &Proxy{
				URL:        server.URL,
				Command:    "true",
				Namespace:  "default",
				Timeout:    100 * time.Millisecond,
				Identities: []string{"alice=header:X: a", "bob=header:X: b"},
			}
			if err := p.check(nil, true); err != nil {
				t.Fatal(err)
			}
			err := p.probe(context.Background())
			if (err == nil) != (c.want == "") ||
				err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, and it should be %q", err, c.want)
			}
		})
	}
}

// TestLogOfAnotherClusterIsReported checks that a log which does not show what was sent is reported as that of another cluster.
func TestLogOfAnotherClusterIsReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	line := `{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":"1","userAgent":"mine"}` + "\n"
	if err := os.WriteFile(file, []byte(line+line), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := &growingLog{path: file, startOffset: int64(len(line))}
	log := auditLog{sendMarked: func(context.Context, string) error { return nil }, find: lines.find}
	if err := log.settle(context.Background(), "mine"); err != nil {
		t.Error(err)
	}
	if err := log.settle(context.Background(), "theirs"); err == nil || !strings.Contains(err.Error(), "the log is of another cluster") {
		t.Error(err)
	}
}

func TestParseIdentities(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	people, err := ParseIdentities([]string{
		"alice[dev,ops]=header:X-Forwarded-User: alice",
		"bob=token:" + token,
		"alice=cookie:session=a=b",
		"system:serviceaccount:a:b=header:X-Who: @" + token,
	}, true)
	if err != nil || len(people) != 3 {
		t.Fatalf("%+v, %v", people, err)
	}
	want := []Identity{
		{Name: "alice", Groups: []string{"dev", "ops"}, headers: []header{{"X-Forwarded-User", "alice"}, {"Cookie", "session=a=b"}}},
		{Name: "bob", headers: []header{{"Authorization", "Bearer secret"}}},
		{Name: "system:serviceaccount:a:b", headers: []header{{"X-Who", "secret"}}},
	}
	for i, w := range want {
		if got := people[i]; got.Name != w.Name || !slices.Equal(got.Groups, w.Groups) || !slices.Equal(got.headers, w.headers) {
			t.Errorf("%+v, not %+v", got, w)
		}
	}
	for _, bad := range []string{
		"",
		"alice",
		"=header:A: b",
		"alice=password:x",
		"alice=header:no value",
		"alice=header:A B: c",
		"alice=header:A: b\r\nC: d",
		"alice=token:",
		"alice=token:" + dir + "/none",
		"alice=cookie:x",
		"alice=client-cert:one",
		"alice=client-cert:a,b",
	} {
		if people, err := ParseIdentities([]string{bad}, true); err == nil {
			t.Errorf("%q is taken as %+v", bad, people[0])
		}
	}
}

// TestChangedSecretsDiffer checks that changed secrets are made only from secrets, and differ from them.
func TestChangedSecretsDiffer(t *testing.T) {
	id := &Identity{
		Name: "alice",
		headers: []header{
			{"X-Forwarded-User", "alice"},
			{"Authorization", "Bearer head.claims.signature"},
			{"Cookie", "session=0123456789A"},
		},
	}
	for want, change := range map[string]func(string) string{
		"Authorization: Bearer head.claims\r\nCookie: session=012345":                cutInHalf,
		"Authorization: Bearer head.claims.sigAature\r\nCookie: session=01234A6789A": changeLetter,
		"Authorization: Bearer head.claims.\r\nCookie: session=012345":               cutSignature,
		"Authorization: Bearer HEAD.CLAIMS.SIGNATURE\r\nCookie: session=012345":      foldCase,
	} {
		if got := id.changeSecrets(change).lines(false, strings.Clone); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	if got := impersonatedPerson("alice", "dev").changeSecrets(cutInHalf).headers; got != nil || changeLetter("") != "" {
		t.Errorf("%+v", got)
	}
}

func FuzzParseIdentities(f *testing.F) {
	f.Add("alice[dev]=header:X-User: secret-word")
	f.Add("alice=cookie:session=secret-word")
	f.Add("a=b=token:/etc/token")
	f.Fuzz(func(t *testing.T, text string) {
		people, err := ParseIdentities([]string{text}, false)
		if err != nil {
			return
		}
		redacted, err := ParseIdentities([]string{RedactIdentity(text)}, false)
		if err != nil || redacted[0].Name != people[0].Name || !slices.Equal(redacted[0].headerNames(), people[0].headerNames()) {
			t.Errorf("%q redacted: %q: %v", text, RedactIdentity(text), err)
		}
	})
}

func TestRedactIdentity(t *testing.T) {
	for in, want := range map[string]string{
		"alice=header:X-User: secret": "alice=header:X-User: [redacted]",
		"alice=cookie:s=secret":       "alice=cookie:s=[redacted]",
		"alice=token:file":            "alice=token:file",
		"alice=header:X: @file":       "alice=header:X: @file",
		"alice=cookie:@file":          "alice=cookie:@file",
	} {
		if got := RedactIdentity(in); got != want {
			t.Errorf("%q: %q, not %q", in, got, want)
		}
	}
}

// placeholder matches what write should have filled in.
var placeholder = regexp.MustCompile(`\{[A-Za-z./:%]+\}`)

// TestAttacksAreShownWithoutCredentials checks that evidence shows no credential, and that everything that is sent has
// a marker.
func TestAttacksAreShownWithoutCredentials(t *testing.T) {
	seen, table := map[string]bool{}, attacksOf(func(string) bool { return true })
	if table[0].Arrives != arrivesAlways || table[1].Requests[0].Who != senderOther {
		t.Error("the table does not begin with the controls of two people")
	}
	people := []*Identity{
		{Name: "alice", headers: []header{{"Authorization", "Bearer s3cr3t-a"}}},
		{Name: "bob", headers: []header{{"Cookie", "s=s3cr3t-b"}}},
	}
	s := requestWriter{
		destination: destination{
			Run:         newRun(),
			Host:        "localhost:1",
			Namespace:   "users",
			Prefix:      "/clusters/east",
			Clusters:    []string{"east", "west"},
			OtherPrefix: "/clusters/west",
		},
		People: senders(people),
	}
	for n, a := range table {
		if a.Name == "" || seen[a.Name] {
			t.Errorf("entry %d has no name of its own: %q", n+1, a.Name)
		}
		seen[a.Name] = true
		shown := strings.Join(s.describeAttack(n, a), "")
		if strings.Contains(shown, "s3cr3t") || placeholder.MatchString(shown) {
			t.Errorf("%s: %q", a.Name, shown)
		}
		for i, w := range s.writeRequests(n, a) {
			if !strings.Contains(w.wireText(), markerOf(s.Run, n, i+1)) {
				t.Errorf("%s: %q has no marker", a.Name, w.wireText())
			}
		}
	}
}

// TestCheckLikeControl checks that a user with other groups, another UID or other extra is not the person.
func TestCheckLikeControl(t *testing.T) {
	with := func(uid string, groups []string, extra map[string]authenticationv1.ExtraValue) authenticationv1.UserInfo {
		return authenticationv1.UserInfo{UID: uid, Groups: groups, Extra: extra}
	}
	seen := with("1", []string{"dev", "ops", "system:authenticated"}, map[string]authenticationv1.ExtraValue{"team": {"red"}})
	for want, got := range map[string]authenticationv1.UserInfo{
		"":                             with("1", []string{"ops", "dev"}, map[string]authenticationv1.ExtraValue{"team": {"blue"}, "authentication.kubernetes.io/credential-id": {"x"}}),
		`with the group "root"`:        with("1", []string{"dev", "ops", "root"}, seen.Extra),
		`without the group "ops"`:      with("1", []string{"dev"}, seen.Extra),
		`with the UID ""`:              with("", seen.Groups, seen.Extra),
		`without the extra key "team"`: with("1", seen.Groups, nil),
		`with the extra key "a"`:       with("1", seen.Groups, map[string]authenticationv1.ExtraValue{"team": {"red"}, "a": {"b"}}),
		`with the extra key "team"`:    with("1", seen.Groups, map[string]authenticationv1.ExtraValue{"team": {"red", "smuggled"}}),
		`with the extra key "authentication.kubernetes.io/credential-id"`: with("1", seen.Groups, map[string]authenticationv1.ExtraValue{"team": {"red"}, "authentication.kubernetes.io/credential-id": {"smuggled"}}),
	} {
		if why := checkLikeControl(got, seen); why != want {
			t.Errorf("%+v: %q, not %q", got, why, want)
		}
	}
}

// TestConfusedPeopleAreFound checks that two people who are confused are found by the groups that each has to have, and by whose
// answers they get.
func TestConfusedPeopleAreFound(t *testing.T) {
	people := sessions("alice", "bob")
	people[0].Groups, people[1].Groups = []string{"dev"}, []string{"ops"}
	table := []attack{
		{Name: "alice", Arrives: arrivesAlways, Requests: []rawRequest{{Who: "alice"}}},
		{Name: "bob", Arrives: arrivesAlways, Requests: []rawRequest{{Who: "bob"}}},
	}
	for want, change := range map[string]func(e *attacksEvidence){
		"": func(*attacksEvidence) {},
		`alice: it was made as "alice" with the group "ops", which is somebody else's`: func(e *attacksEvidence) {
			e.Attacks[0].Events[0] = bytes.Replace(e.Attacks[0].Events[0], []byte(`"dev"`), []byte(`"dev","ops"`), 1)
		},
		`bob: it was made as "bob" without the group "ops"`: func(e *attacksEvidence) {
			e.Attacks[1].Events[0] = bytes.Replace(e.Attacks[1].Events[0], []byte(`"ops"`), nil, 1)
		},
		`bob: request 1 was answered with what "alice" was told`: func(e *attacksEvidence) { e.Attacks[1].Answers[0].AuditID = e.Attacks[0].Answers[0].AuditID },
	} {
		e, out := &attacksEvidence{destination: destination{Run: "azrun", Namespace: "n"}}, newJudgement()
		s := requestWriter{destination: e.destination, People: senders(people)}
		for n, p := range people {
			marker := markerOf(e.Run, n, 1)
			e.Attacks = append(e.Attacks, attackEvidence{
				Began:   truncatedNow(),
				Ended:   time.Now(),
				Sent:    s.describeAttack(n, table[n]),
				Answers: []reply{{Code: http.StatusOK, Kind: "PodList", AuditID: marker}},
				Events: []json.RawMessage{
					fmt.Appendf(
						nil,
						`{"auditID":%q,"stage":"ResponseComplete","requestURI":"/?%[1]s","user":{"username":"proxy"},"impersonatedUser":{"username":%q,"groups":[%q]}}`,
						marker,
						p.Name,
						p.Groups[0],
					),
				},
			})
		}
		change(e)
		judgeInto(t, out, e, table, people, "proxy", false)
		got := strings.Join(seq.Map(out.failures, failure.String), "\n")
		if got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
