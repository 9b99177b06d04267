package deputy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
)

// alternative is a way in which a dashboard makes the requests of people under their names.
type alternative struct {
	name string
	// begin creates what a session of a person needs. It returns the session's headers, and how many objects were
	// created and how many requests were sent to the API server for it.
	begin func(ctx context.Context, person int) (headers http.Header, cost beginCost, err error)
	// arrives returns the name of a person at the API server.
	arrives func(person int) string
}

// beginCost is what the beginning of a session costs.
type beginCost struct{ objects, tokens, requests int }

// measured is what an alternative costs.
type measured struct {
	beginCost
	begin time.Duration
	// first and next are how many questions the authorizer was asked about each person's first request, and about all
	// the other requests together.
	first, next int
	// times are how long the requests took.
	times []time.Duration
}

const (
	measuredPeople   = 20
	measuredRequests = 25
)

// TestAlternatives compares impersonation, an ID token for each person, and a ServiceAccount for each person on one API
// server: objects, tokens, requests, questions to the authorizer, and times. Everybody has to arrive under the right
// name. Counts are compared with expected ones; times are only printed (go test ./deputy -run TestAlternatives -v).
func TestAlternatives(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	t.Parallel() // it mostly waits
	ctx := context.Background()
	issuer := startIssuer(t)
	o := target(t)
	o.Cell.Gate, o.Cell.Name = scenarios.GateOff, "gate-off" // with the gate on, the first request also asks about constrained modes
	o.KubeAPIServerPath = wrapAPIServerWith(ctx, t, t.TempDir(), o, "--authentication-config="+issuer.config(t))
	reads := scenarios.Grant{
		Subject:   scenarios.Subject{Group: "readers"},
		Verbs:     []string{"list"},
		APIGroups: []string{""},
		Resources: []string{"pods"},
		Namespace: Namespace,
	}
	behind, err := startPlane(ctx, o, append(proxyGrants(nil, false), reads), []string{Namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = behind.Stop() })
	want := map[string]measured{
		"impersonation":       {first: 3, next: 3},
		"an ID token":         {beginCost: beginCost{tokens: 1}, first: 1, next: 1},
		"an account of a day": {beginCost: beginCost{objects: 2, tokens: 1, requests: 3}, first: 1, next: 1},
	}
	for _, a := range []alternative{impersonating(behind), byIDToken(issuer), byAccount(behind)} {
		got := measure(ctx, t, behind, a)
		w := want[a.name]
		slices.Sort(got.times)
		t.Logf(
			"%s: a session: %d objects, %d tokens, %d requests to the API server, %.1f ms; a request: %d questions to the authorizer, then %d; %d requests, median %.2f ms, 9 of 10 within %.2f ms",
			a.name,
			got.objects,
			got.tokens,
			got.requests,
			float64(got.begin.Microseconds())/1000,
			got.first,
			got.next,
			len(got.times),
			float64(got.times[len(got.times)/2].Microseconds())/1000,
			float64(got.times[len(got.times)*9/10].Microseconds())/1000,
		)
		if got.beginCost != w.beginCost || got.first != w.first || got.next != w.next {
			t.Errorf("%s: %+v, %d, %d questions, want %+v", a.name, got.beginCost, got.first, got.next, w)
		}
	}
}

// measure has each person begin a session and send requests one after the other.
func measure(ctx context.Context, t *testing.T, p *plane, a alternative) measured {
	t.Helper()
	var all []measured
	for person := range measuredPeople {
		m := measured{}
		begun := time.Now()
		headers, cost, err := a.begin(ctx, person)
		if err != nil {
			t.Fatal(err)
		}
		m.begin, m.beginCost = time.Since(begun), cost
		for n := range measuredRequests {
			questions, took := list(ctx, t, p, headers, a.arrives(person))
			m.times = append(m.times, took)
			if n == 0 {
				m.first = questions
			} else if n == 1 {
				m.next = questions
			} else if questions != m.next {
				t.Errorf("%s: request %d: %d questions, %d before", a.name, n, questions, m.next)
			}
		}
		all = append(all, m)
	}
	sum := all[0]
	for _, m := range all[1:] {
		isSame := m.beginCost == sum.beginCost && m.first == sum.first && m.next == sum.next
		if !isSame {
			t.Errorf(
				"%s: one person costs %+v, %d, %d, another %+v, %d, %d",
				a.name,
				sum.beginCost,
				sum.first,
				sum.next,
				m.beginCost,
				m.first,
				m.next,
			)
		}
		sum.times, sum.begin = append(sum.times, m.times...), sum.begin+m.begin
	}
	sum.begin /= measuredPeople
	return sum
}

// list lists pods, and returns how many questions the authorizer was asked about it, and how long the answer took.
func list(ctx context.Context, t *testing.T, p *plane, headers http.Header, name string) (questions int, took time.Duration) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url.String()+podsIn(Namespace), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = headers.Clone()
	batch, err := p.OpenBatch()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	took = time.Since(begun)
	seen, closing := batch.Close(ctx)
	if err := errors.Join(err, resp.Body.Close(), closing); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s is answered %d", name, resp.StatusCode)
	}
	raw, err := p.Audit(ctx, resp.Header.Get("Audit-Id"))
	if err != nil {
		t.Fatal(err)
	}
	if event := decodeEvent(raw); arrivingUser(event).Username != name {
		t.Fatalf("it was made as %q, not as %q", arrivingUser(event).Username, name)
	}
	for _, r := range seen.Reviews {
		isAsked := r.Point == string(recorder.Front)
		if isAsked &&
			(r.Spec.User == name || r.Spec.User == proxyName) {
			questions++
		}
	}
	return questions, took
}

func impersonating(p *plane) alternative {
	name := func(person int) string { return fmt.Sprintf("person-%d@corp", person) }
	return alternative{"impersonation", func(_ context.Context, person int) (http.Header, beginCost, error) {
		return http.Header{
			"Authorization":     {"Bearer " + p.token},
			"Impersonate-User":  {name(person)},
			"Impersonate-Group": {"readers"},
		}, beginCost{}, nil
	}, name}
}

func byIDToken(i *issuer) alternative {
	name := func(person int) string { return fmt.Sprintf("idp-%d@corp", person) }
	return alternative{"an ID token", func(_ context.Context, person int) (http.Header, beginCost, error) {
		token, err := i.sign(name(person))
		return http.Header{"Authorization": {"Bearer " + token}}, beginCost{tokens: 1}, err
	}, name}
}

// byAccount creates a ServiceAccount for each session, binds it to what the person may do, and requests a token.
func byAccount(p *plane) alternative {
	name := func(person int) string { return fmt.Sprintf("session-%d", person) }
	return alternative{"an account of a day", func(ctx context.Context, person int) (http.Header, beginCost, error) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name(person)}}
		_, err := p.admin.CoreV1().ServiceAccounts(Namespace).Create(ctx, account, metav1.CreateOptions{})
		if err != nil {
			return nil, beginCost{}, err
		}
		_, err = p.admin.RbacV1().RoleBindings(Namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name(person)},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: name(person)}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:aggregate-to-view"},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, beginCost{}, err
		}
		token, err := p.admin.CoreV1().
			ServiceAccounts(Namespace).
			CreateToken(ctx, name(person), &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			return nil, beginCost{}, err
		}
		headers := http.Header{"Authorization": {"Bearer " + token.Status.Token}}
		return headers, beginCost{objects: 2, tokens: 1, requests: 3}, p.awaitList(ctx, headers)
	}, func(person int) string { return "system:serviceaccount:" + Namespace + ":" + name(person) }}
}

// awaitList waits until a binding is in force.
func (p *plane) awaitList(ctx context.Context, headers http.Header) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url.String()+podsIn(Namespace)+"?limit=1", nil)
		if err != nil {
			return err
		}
		req.Header = headers.Clone()
		resp, err := p.transport.RoundTrip(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// issuer is an OpenID Connect provider on loopback, with discovery, keys and tokens.
type issuer struct {
	url string
	ca  []byte
	key *ecdsa.PrivateKey
}

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	var err error
	if i.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	l, err := server.ServeLoopback(context.Background(), mux, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	i.url, i.ca = l.URL, l.CA
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(
			w,
			map[string]any{
				"issuer":                                i.url,
				"jwks_uri":                              i.url + "/keys",
				"id_token_signing_alg_values_supported": []string{"ES256"},
				"response_types_supported":              []string{"id_token"},
				"subject_types_supported":               []string{"public"},
			},
		)
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		point, err := i.key.PublicKey.Bytes()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		part := base64.RawURLEncoding.EncodeToString
		answer(
			w,
			map[string]any{
				"keys": []any{
					map[string]any{
						"kty": "EC",
						"crv": "P-256",
						"alg": "ES256",
						"use": "sig",
						"kid": "1",
						"x":   part(point[1:33]),
						"y":   part(point[33:]),
					},
				},
			},
		)
	})
	return i
}

// config writes an AuthenticationConfiguration that trusts the issuer, and returns its file.
func (i *issuer) config(t *testing.T) string {
	t.Helper()
	block, _ := pem.Decode(i.ca)
	if block == nil {
		t.Fatal("the issuer has no authority")
	}
	authority := strings.ReplaceAll(strings.TrimSpace(string(i.ca)), "\n", "\n      ")
	text := fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: %s
    audiences: [dashboard]
    certificateAuthority: |
      %s
  claimMappings:
    username: {claim: sub, prefix: ""}
    groups: {claim: groups, prefix: ""}
`, i.url, authority)
	path := filepath.Join(t.TempDir(), "authentication.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sign returns an ID token of a person.
func (i *issuer) sign(subject string) (string, error) {
	claims, err := json.Marshal(map[string]any{"iss": i.url, "aud": "dashboard", "sub": subject, "groups": []string{"readers"}, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()})
	if err != nil {
		return "", err
	}
	part := base64.RawURLEncoding.EncodeToString
	signed := part([]byte(`{"alg":"ES256","typ":"JWT","kid":"1"}`)) + "." + part(claims)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, digest[:])
	if err != nil {
		return "", err
	}
	return signed + "." + part(append(fill(r), fill(s)...)), nil
}

// fill returns a number as 32 bytes.
func fill(n *big.Int) []byte { return n.FillBytes(make([]byte, 32)) }
