package certify

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
)

// PredicateType names what the signature of a bundle claims: that its signer stands for the certification in it.
const PredicateType = "https://authzconf.dev/certification/v1alpha1"

// claim is the predicate: what the certification says, so that who has only the signature sees what it is about.
type claim struct {
	Product
	Seed        int64                `json:"seed"`
	SuiteDigest string               `json:"suiteDigest"`
	Levels      []CertificationLevel `json:"levels"`
}

// Sign writes the signature of a folder that Write has written into it.
func Sign(folder string, key *Key) error {
	b, err := OpenBundle(folder)
	if err != nil {
		return err
	}
	c, err := b.Certification()
	switch {
	case err != nil:
		return err
	case c.Product == (Product{}):
		return errors.New("it says neither vendor nor product, and such a certification is not signed")
	}
	raw, err := signFiles(key, b.without(signatureFile), PredicateType, claim{c.Product, c.Seed, c.SuiteDigest, c.Levels})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, signatureFile), raw, 0o644)
}

type signed struct {
	// file is the only one of them that the signature does not cover: it holds it.
	file, predicateType string
	Bundle
	claim any // what has to be signed about them, if anything
}

func (b Bundle) signed() signed {
	s := signed{file: signatureFile, predicateType: PredicateType, Bundle: b}
	if c, err := b.Certification(); err == nil {
		s.claim = claim{c.Product, c.Seed, c.SuiteDigest, c.Levels}
	}
	return s
}

func (b Bundle) without(file string) Bundle {
	out := maps.Clone(b)
	delete(out, file)
	return out
}

// signers are the beginnings of the IDs of the keys that are said to have signed. Nothing is checked.
func (s signed) signers() (ids []string) {
	e, err := parseEnvelope(s.Bundle[s.file])
	if err != nil {
		return nil
	}
	return seq.Map(e.Signatures, func(s dsse.Signature) string { return fmt.Sprintf("%.12q", s.KeyID) })
}

// check says what is wrong with the signature of the files as they are. Without a key only whose it is is not checked.
func (s signed) check(key *Key) (differences []string) {
	if s.Bundle[s.file] == nil {
		return []string{s.file + ": is missing: nobody has signed"}
	}
	is, err := openStatement(key, s.Bundle[s.file], s.predicateType)
	if err != nil {
		return []string{fmt.Sprintf("%s: %s", s.file, err)}
	}
	differences = is.Differences(s.without(s.file))
	if s.claim != nil {
		claimed, _ := json.Marshal(s.claim)
		var about bytes.Buffer
		if json.Compact(&about, is.Predicate) != nil || !bytes.Equal(about.Bytes(), claimed) {
			differences = append(differences, s.file+": what is signed about the report is not what the report says")
		}
	}
	return differences
}

// SignedBy says whose signature a bundle carries. With keys, one of them must have signed it.
func (b Bundle) SignedBy(keys []*Key) (by string, differences []string) { return b.signed().by(keys) }

func (s signed) by(keys []*Key) (by string, differences []string) {
	switch {
	case len(keys) == 0 && s.Bundle[s.file] == nil:
		return "none", nil
	case len(keys) == 0:
		// Whose it is nobody can say without a key; that it is not of this bundle anybody can.
		if differences = s.check(nil); len(differences) > 0 {
			return "not valid", differences
		}
		return fmt.Sprintf("of key %.60s, not checked: --key names one to check it with", strings.Join(s.signers(), ", ")), nil
	}
	for _, key := range keys {
		if differences = s.check(key); len(differences) == 0 {
			return fmt.Sprintf("valid, of key %.12s", key.ID()), nil
		}
	}
	return "not valid", differences
}

// ReportPredicate names what the signature of another report claims: that its signer stands for the outcome in it.
const ReportPredicate = "https://authzconf.dev/report/v1alpha1"

// SignReport signs a report of another product: a file that has the digests of all others. outcome is what it says.
func SignReport(key *Key, name string, report []byte, outcome any) ([]byte, error) {
	return signFiles(key, map[string][]byte{name: report}, ReportPredicate, outcome)
}

// ReportSignedBy is SignedBy for the signature in a file that SignReport has made; nil is none.
func ReportSignedBy(keys []*Key, report Bundle, signature string, outcome any) (by string, differences []string) {
	return signed{signature, ReportPredicate, report, outcome}.by(keys)
}

// challengePredicate names what the signature of a challenge claims: that its signer wants this to be answered.
const challengePredicate = "https://authzconf.dev/challenge/v1alpha1"

// Challenge is what a certifier wants to have answered: under a seed that nobody knew before, until it ends.
type Challenge struct {
	Seed   int64     `json:"seed"`
	Nonce  string    `json:"nonce"`
	Begins time.Time `json:"begins"`
	Ends   time.Time `json:"ends"`
}

// NewChallenge draws a seed and a nonce, and signs them.
func NewChallenge(key *Key, valid time.Duration) (raw []byte, c *Challenge, err error) {
	nonce := make([]byte, 32)
	if _, err := rand.Read(nonce); err != nil {
		return nil, nil, err
	}
	seed, err := rand.Int(rand.Reader, big.NewInt(1<<53)) // which every reader of JSON takes
	if err != nil {
		return nil, nil, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	c = &Challenge{seed.Int64(), hex.EncodeToString(nonce), now, now.Add(valid)}
	raw, err = signFiles(key, map[string][]byte{"nonce": nonce}, challengePredicate, c)
	return raw, c, err
}

// ParseChallenge reads a challenge that a key has signed, or anybody without a key.
func ParseChallenge(raw []byte, key *Key) (*Challenge, error) {
	s, err := openStatement(key, raw, challengePredicate)
	if err != nil {
		return nil, err
	}
	c := &Challenge{}
	if err := reports.DecodeStrictly(s.Predicate, c); err != nil || len(c.Nonce) != 64 || !c.Begins.Before(c.Ends) {
		return nil, errors.New("what is signed is not a challenge")
	}
	return c, nil
}

// Check says why the challenge cannot be answered at a time.
func (c *Challenge) Check(at time.Time) error {
	switch {
	case at.Before(c.Begins.Add(-time.Minute)): // clocks differ
		return fmt.Errorf("it is from %s, which has not come yet", c.Begins.Format(time.RFC3339))
	case at.After(c.Ends):
		return fmt.Errorf("it ended at %s: ask the certifier for another one", c.Ends.Format(time.RFC3339))
	}
	return nil
}

// Bind binds the certification to a challenge, and to the certificates that the webhook has shown.
func (c *Certification) Bind(challenge []byte, webhook *Webhook) error {
	c.Certificates = webhook.Certificates()
	if challenge == nil {
		return nil
	}
	c.Challenge = json.RawMessage(challenge)
	if wrong := c.unbound(nil); len(wrong) > 0 {
		return errors.New(wrong[0])
	}
	return nil
}

// unbound says why a certification does not answer the challenge in it, which the key must have signed, if there is one.
func (c *Certification) unbound(key *Key) (differences []string) {
	add := func(format string, args ...any) {
		differences = append(differences, "challenge: "+fmt.Sprintf(format, args...))
	}
	challenge, err := ParseChallenge(c.Challenge, key)
	if err != nil {
		add("%v", err)
		return differences
	}
	if challenge.Seed != c.Seed {
		add("its seed is %d, and %d was asked under", challenge.Seed, c.Seed)
	}
	for _, at := range []time.Time{c.Started, c.Ended} {
		if err := challenge.Check(at); err != nil {
			add("at %s: %v", at.Format(time.RFC3339), err)
		}
	}
	if c.Ended.Before(c.Started) {
		add("it was answered from %s until %s", c.Started.Format(time.RFC3339), c.Ended.Format(time.RFC3339))
	}
	if len(c.Certificates) != 1 {
		add("the webhook showed %d certificates, and an answer is by one", len(c.Certificates))
	}
	return differences
}

// Made says who has made a bundle, as far as that can be known. With keys, a challenge in it must be by one of them: who
// has signed both has asked himself.
func (b Bundle) Made(c *Certification, keys []*Key) (made string, differences []string) {
	if c.Challenge == nil {
		return "self-declared", nil
	}
	if len(keys) == 0 {
		return "self-declared, for a challenge that nobody has checked: --key names the certifier's", c.unbound(nil)
	}
	for _, key := range keys {
		if differences = c.unbound(key); len(differences) > 0 {
			continue
		}
		if len(b.signed().check(key)) == 0 {
			return fmt.Sprintf("witnessed by key %.12s", key.ID()), nil
		}
		return fmt.Sprintf("self-declared, for the challenge of key %.12s", key.ID()), nil
	}
	return "self-declared", differences
}
