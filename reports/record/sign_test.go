package record

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const claimed = "https://example.com/claim/v1"

func makeKey(t testing.TB) (*Key, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key.pem")
	key, err := NewKey(path)
	if err != nil {
		t.Fatal(err)
	}
	return key, path
}

func TestSignAndVerify(t *testing.T) {
	key, path := makeKey(t)
	public, err := LoadKey(path + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if key.ID() != public.ID() {
		t.Errorf("the parts of one key are called %s and %s", key.ID(), public.ID())
	}
	files := map[string][]byte{"a": []byte("1"), "b": []byte("2")}
	raw, err := SignFiles(key, files, claimed, map[string]int{"n": 1})
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenStatement(public, raw, claimed)
	if err != nil {
		t.Fatal(err)
	}
	if string(s.Predicate) != `{"n":1}` {
		t.Errorf("the claim is %s", s.Predicate)
	}
	for name, c := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"as signed": {files, ""},
		"changed":   {map[string][]byte{"a": []byte("1"), "b": []byte("3")}, "b: it is not what was signed"},
		"missing":   {map[string][]byte{"a": []byte("1")}, "b: it was signed, and is missing"},
		"added":     {map[string][]byte{"a": []byte("1"), "b": []byte("2"), "c": nil}, "c: it was not signed"},
	} {
		if got := strings.Join(s.Differences(c.files), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	key, path := makeKey(t)
	other, _ := makeKey(t)
	raw, err := SignFiles(key, map[string][]byte{"a": nil}, claimed, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key  *Key
		raw  string
		want string
	}{
		"wrong key":       {other, string(raw), "not signed by key"},
		"payload changed": {key, strings.Replace(string(raw), `"payload": "ey`, `"payload": "eZ`, 1), "not signed by key"},
		"type changed":    {key, strings.Replace(string(raw), payloadType, "text/plain", 1), "not signed by key"},
		"no signature":    {key, `{"payloadType":"x","payload":"","signatures":[]}`, "not a DSSE envelope"},
		"more behind":     {key, string(raw) + "{}", "not a DSSE envelope"},
		"something else":  {key, "<html>", "not a DSSE envelope"},
	} {
		if _, err := OpenStatement(c.key, []byte(c.raw), claimed); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: expected %q, got %v", name, c.want, err)
		}
	}
	if _, err := OpenStatement(key, raw, "another"); err == nil || !strings.Contains(err.Error(), "is about") {
		t.Errorf("a statement about something else: %v", err)
	}
	public, err := LoadKey(path + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := SignFiles(public, nil, claimed, nil); err == nil {
		t.Error("a public key signs")
	}
}

func TestKeyFiles(t *testing.T) {
	_, path := makeKey(t)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the private key has mode %v (%v)", info.Mode(), err)
	}
	if _, err := NewKey(path); err == nil {
		t.Error("a key is overwritten")
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKey(path); err == nil || !strings.Contains(err.Error(), "others can read") {
		t.Errorf("a key that others can read: %v", err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(ec.Public())
	if err != nil {
		t.Fatal(err)
	}
	_, err = ParseKey(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	if err == nil || !strings.Contains(err.Error(), "only Ed25519") {
		t.Errorf("another algorithm: %v", err)
	}
	if _, err := ParseKey([]byte("x")); err == nil || !strings.Contains(err.Error(), "not a key in PEM") {
		t.Errorf("no key: %v", err)
	}
}

func FuzzVerify(f *testing.F) {
	key, path := makeKey(f)
	raw, err := SignFiles(key, map[string][]byte{"a": nil}, claimed, nil)
	if err != nil {
		f.Fatal(err)
	}
	pub, err := os.ReadFile(path + ".pub")
	if err != nil {
		f.Fatal(err)
	}
	other, _ := makeKey(f)
	f.Add(raw, pub)
	f.Fuzz(func(t *testing.T, raw, pub []byte) {
		if _, err := OpenStatement(other, raw, claimed); err == nil {
			t.Errorf("%q is signed by nobody", raw)
		}
		if k, err := ParseKey(pub); err == nil {
			_, _ = OpenStatement(k, raw, claimed)
		}
	})
}
