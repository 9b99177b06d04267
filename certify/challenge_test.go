package certify

import (
	"bytes"
	"encoding/json"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// challenged is a bundle that answers a challenge of a key, as change has it.
func challenged(t *testing.T, key *Key, change func(*Certification)) Bundle {
	t.Helper()
	_, what, err := NewChallenge(key, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, b := bundled(t, plan(t, smallSeed), example, Core)
	what.Seed = c.Seed // whose plan is there already
	challenge, err := signFiles(key, map[string][]byte{"nonce": nil}, challengePredicate, what)
	if err != nil {
		t.Fatal(err)
	}
	c.Challenge, c.Certificates, c.Started, c.Ended = challenge, []string{"c0"}, what.Begins, what.Begins.Add(time.Minute)
	change(c)
	if b[certificationFile], err = yaml.Marshal(c); err != nil {
		t.Fatal(err)
	}
	shown, err := c.shown()
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(b, shown)
	return b
}

func newTestKey(t *testing.T) *Key {
	t.Helper()
	key, err := NewKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestCheating tries every way to answer a challenge that was not answered, or to have a bundle say something else.
func TestCheating(t *testing.T) {
	key, foreign := newTestKey(t), newTestKey(t)
	honest := func(*Certification) {}
	allow, refuse := []byte(`\"allowed\":true`), []byte(`\"allowed\":false`)
	for name, c := range map[string]struct {
		key    *Key
		claim  func(*Certification)
		edit   func(Bundle)
		wanted string
	}{
		"honest":                     {key, honest, func(Bundle) {}, ""},
		"another certifier's":        {foreign, honest, func(Bundle) {}, "it is not signed by key"},
		"expired":                    {key, func(c *Certification) { c.Ended = c.Ended.Add(2 * time.Hour) }, func(Bundle) {}, "it ended at"},
		"asked before it":            {key, func(c *Certification) { c.Started = c.Started.Add(-time.Hour) }, func(Bundle) {}, "has not come yet"},
		"backwards":                  {key, func(c *Certification) { c.Ended = c.Started.Add(-time.Second) }, func(Bundle) {}, "it was answered from"},
		"another certificate midway": {key, func(c *Certification) { c.Certificates = append(c.Certificates, "c1") }, func(Bundle) {}, "showed 2 certificates"},
		"another seed":               {key, func(c *Certification) { c.Seed = 1 }, func(Bundle) {}, "its seed is 5, and 1"},
		"a raw answer":               {key, honest, func(b Bundle) { b[evidenceFile] = bytes.Replace(b[evidenceFile], refuse, allow, 1) }, "is not the one that its digest is of"},
		"a digest": {key, honest, func(b Bundle) {
			b[evidenceFile] = bytes.Replace(b[evidenceFile], []byte(`"digest":"`), []byte(`"digest":"0`), 1)
		}, "is not the one that its digest is of"},
		"an answer with its digest": {key, honest, replaceAnswer, "it is not what certification.yaml has the digest of"},
		"what was read from it": {key, honest, func(b Bundle) {
			b[evidenceFile] = bytes.Replace(b[evidenceFile], []byte(`"check":"plain"`), []byte(`"check":"plain","allowed":true`), 1)
		}, "has the digest of"},
		"without a raw answer": {key, honest, func(b Bundle) {
			b[evidenceFile] = append(b[evidenceFile], []byte(`{"check":"plain","vector":"`+plan(t, smallSeed).Scenario[0].ID+`","http":200,"status":true,"allowed":true}`+"\n")...)
		}, "is not in it as it came"},
		"cut off between two answers": {key, honest, func(b Bundle) {
			b[evidenceFile] = b[evidenceFile][:bytes.LastIndexByte(b[evidenceFile][:len(b[evidenceFile])-1], '\n')+1]
		}, "has the digest of"},
		"cut off in an answer": {key, honest, func(b Bundle) { b[evidenceFile] = b[evidenceFile][:len(b[evidenceFile])/2] }, "evidence.jsonl"},
	} {
		t.Run(name, func(t *testing.T) {
			b := challenged(t, c.key, c.claim)
			c.edit(b)
			claimed, differences, err := direct(t).Verify(b)
			text := strings.Join(differences, "\n")
			if err != nil {
				text += err.Error()
			}
			if claimed != nil {
				_, unbound := b.Made(claimed, []*Key{key})
				text += strings.Join(unbound, "\n")
			}
			if (text == "") != (c.wanted == "") || !strings.Contains(text, c.wanted) {
				t.Errorf("expected %q, got %q", c.wanted, text)
			}
		})
	}
}

// replaceAnswer replaces an answer by one that somebody else may have got, digest and all.
func replaceAnswer(b Bundle) {
	line, rest, _ := bytes.Cut(b[evidenceFile], []byte("\n"))
	var a Answer
	if json.Unmarshal(line, &a) == nil {
		a.Raw += " "
		a.Digest = digest([]byte(a.Raw))[:digestLength]
	}
	line, _ = json.Marshal(a)
	b[evidenceFile] = bytes.Join([][]byte{line, rest}, []byte("\n"))
}

// TestMade says who has made a bundle.
func TestMade(t *testing.T) {
	certifier, vendor := newTestKey(t), newTestKey(t)
	for signer, want := range map[*Key]string{nil: "self-declared, for the challenge of key", vendor: "self-declared, for the challenge of key", certifier: "witnessed by key"} {
		b := challenged(t, certifier, func(*Certification) {})
		if signer != nil {
			folder := t.TempDir()
			if err := Direct(nil).Folder().Write(folder, b); err != nil {
				t.Fatal(err)
			}
			if err := Sign(folder, signer); err != nil {
				t.Fatal(err)
			}
			var err error
			if b, err = OpenBundle(folder); err != nil {
				t.Fatal(err)
			}
		}
		c, err := b.Certification()
		if err != nil {
			t.Fatal(err)
		}
		if made, wrong := b.Made(c, []*Key{vendor, certifier}); len(wrong) > 0 || !strings.HasPrefix(made, want) {
			t.Errorf("expected %q, got %q %v", want, made, wrong)
		}
		if made, wrong := b.Made(c, nil); len(wrong) > 0 || !strings.HasPrefix(made, "self-declared, for a challenge that nobody") {
			t.Errorf("without a key: %q %v", made, wrong)
		}
	}
	c, b := bundled(t, plan(t, smallSeed), example, Core)
	if made, wrong := b.Made(c, []*Key{certifier}); made != "self-declared" || len(wrong) > 0 {
		t.Errorf("without a challenge: %q %v", made, wrong)
	}
}

// TestSecretsAreNotKept has an authorizer that says what it should not.
func TestSecretsAreNotKept(t *testing.T) {
	v := plan(t, smallSeed).Scenario[0]
	a := Answer{Check: plain, Vector: v.ID, HTTP: 200}
	a.keep([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true,"reason":"say \"Bearer abc\\\" to it"}}`), v)
	if strings.Contains(a.Raw, "abc") || a.Fault == "" && !a.Allowed {
		t.Errorf("%+v", a)
	}
	long := Answer{Check: plain, Vector: v.ID, HTTP: 200}
	long.keep([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true,"reason":"`+strings.Repeat("x", maxRaw)+`"}}`), v)
	if long.Raw != "" || !long.Allowed || long.Length < maxRaw {
		t.Errorf("%+v", long)
	}
}
