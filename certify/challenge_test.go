package certify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

func newTestKey(t *testing.T) *record.Key {
	t.Helper()
	key, err := record.NewKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newTestChallenge returns a challenge of a key, for the seed whose plan is made already.
func newTestChallenge(t *testing.T, key *record.Key) (raw []byte, c *Challenge) {
	t.Helper()
	_, what, err := NewChallenge(key, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	what.Seed = smallSeed
	if raw, err = record.SignFiles(key, map[string][]byte{"nonce": nil}, challengePredicate, what); err != nil {
		t.Fatal(err)
	}
	if c, err = ParseChallenge(raw, key); err != nil {
		t.Fatal(err)
	}
	return raw, c
}

// TestPretendedChallengesAreFound checks that all ways are found to pretend that a challenge was answered.
func TestPretendedChallengesAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		change func(seed *int64, run *circumstances)
		wanted string
	}{
		"honest":                     {func(*int64, *circumstances) {}, ""},
		"expired":                    {func(_ *int64, r *circumstances) { r.Ended = r.Ended.Add(2 * time.Hour) }, "it ended at"},
		"asked before it":            {func(_ *int64, r *circumstances) { r.Began = r.Began.Add(-time.Hour) }, "has not come yet"},
		"backwards":                  {func(_ *int64, r *circumstances) { r.Ended = r.Began.Add(-time.Second) }, "it was answered from"},
		"another certificate midway": {func(_ *int64, r *circumstances) { r.Certificates = append(r.Certificates, "c1") }, "showed 2 certificates"},
		"no certificate":             {func(_ *int64, r *circumstances) { r.Certificates = nil }, "showed 0 certificates"},
		"another seed":               {func(seed *int64, _ *circumstances) { *seed = 1 }, "its seed is 5, and 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, challenge := newTestChallenge(t, newTestKey(t))
			trial := &Trial[Answer]{Seed: smallSeed, Challenge: challenge}
			run := &circumstances{Began: challenge.Begins, Ended: challenge.Begins.Add(time.Minute), Certificates: []string{"c0"}}
			c.change(&trial.Seed, run)
			result := trial.judgeChallenge(&judgedRun{circumstances: run})
			text := strings.Join(result.Details, "\n")
			if (result.Verdict == verdicts.Passed) != (c.wanted == "") || !strings.Contains(text, c.wanted) {
				t.Errorf("expected %q, got %s: %q", c.wanted, result.Verdict, text)
			}
		})
	}
}

// TestChallengeIsAnswered runs with a challenge and verifies the report. Keys show who asked, and the case of the
// challenge cannot be left out.
func TestChallengeIsAnswered(t *testing.T) {
	t.Parallel()
	certifier, vendor, foreign := newTestKey(t), newTestKey(t), newTestKey(t)
	raw, _ := newTestChallenge(t, certifier)
	other, _ := newTestChallenge(t, certifier)
	file := filepath.Join(t.TempDir(), "challenge.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	b := plan(t, smallSeed)
	r := execute(
		t.Context(),
		t,
		b,
		startWebhook(t, reference.Handler(b.Policy.Decide)),
		"--authorizer-kubeconfig=x",
		"--report-dir=x",
		"--challenge="+file,
		"--focus=^ignores-user$",
	)
	if got := r.made.Report; got.Outcome.Result != verdicts.Passed || got.Seed != smallSeed {
		t.Fatalf("seed %d: %+v", got.Seed, got.Outcome)
	}
	v := r.verify(t, nil)
	if len(v.Differences) > 0 {
		t.Fatalf("verify: %q", v.Differences)
	}
	attester := v.Plan.(product.Attester)
	if !attester.Answers(raw) || attester.Answers(other) {
		t.Error("the challenge that is answered is another one")
	}
	for name, c := range map[string]struct {
		keys   []*record.Key
		signer *record.Key
		want   string
		wrong  bool
	}{
		"no key":                  {nil, certifier, "self-declared, for a challenge that nobody has checked", false},
		"another certifier's":     {[]*record.Key{foreign}, certifier, "self-declared", true},
		"not signed":              {[]*record.Key{vendor, certifier}, nil, "self-declared, for the challenge of key", false},
		"signed by the vendor":    {[]*record.Key{vendor, certifier}, vendor, "self-declared, for the challenge of key", false},
		"signed by who has asked": {[]*record.Key{vendor, certifier}, certifier, "witnessed by key", false},
	} {
		made, differences := attester.Attest(c.keys, func(key *record.Key) bool { return key == c.signer })
		if !strings.HasPrefix(made, c.want) || (len(differences) > 0) != c.wrong {
			t.Errorf("%s: %q %q", name, made, differences)
		}
	}
	plain := &Trial[Answer]{}
	if made, wrong := plain.Attest([]*record.Key{certifier}, nil); made != "self-declared" || len(wrong) > 0 || plain.Answers(raw) {
		t.Errorf("without a challenge: %q %v", made, wrong)
	}
}

// TestExpiredChallenge checks that an expired challenge is not answered, nor one for another seed.
func TestExpiredChallenge(t *testing.T) {
	_, c := newTestChallenge(t, newTestKey(t))
	for at, want := range map[time.Time]string{
		c.Begins:                        "",
		c.Begins.Add(-30 * time.Second): "",
		c.Begins.Add(-2 * time.Minute):  "has not come yet",
		c.Ends.Add(time.Second):         "ask the certifier for another one",
	} {
		err := c.Check(at)
		if (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: expected %q, got %v", at, want, err)
		}
	}
}

// TestSecretsAreNotKept records the answers of an authorizer that reveals secrets.
func TestSecretsAreNotKept(t *testing.T) {
	v := plan(t, smallSeed).Scenario[0]
	a := Answer{Check: plainCheck, Vector: v.ID, HTTP: 200}
	a.keepBody([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true,"reason":"say \"Bearer abc\\\" to it"}}`), v)
	if strings.Contains(a.Raw, "abc") ||
		a.Fault == "" && !a.Allowed {
		t.Errorf("%+v", a)
	}
	long := Answer{Check: plainCheck, Vector: v.ID, HTTP: 200}
	long.keepBody([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true,"reason":"`+strings.Repeat("x", maxRaw)+`"}}`), v)
	if long.Raw != "" || !long.Allowed || long.Length < maxRaw {
		t.Errorf("%+v", long)
	}
}
