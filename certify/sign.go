package certify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
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

// signed are files that are signed, or are to be.
type signed struct {
	// file is the only one of them that the signature does not cover: it holds it.
	file, predicateType string
	Bundle
	// claim is what has to be signed about them, if anything.
	claim any
}

func (b Bundle) signed() signed {
	s := signed{file: signatureFile, predicateType: PredicateType, Bundle: b}
	if c, err := b.Certification(); err == nil {
		s.claim = claim{c.Product, c.Seed, c.SuiteDigest, c.Levels}
	}
	return s
}

// without is a bundle without a file.
func (b Bundle) without(file string) Bundle {
	out := maps.Clone(b)
	delete(out, file)
	return out
}

// signers are the beginnings of the IDs of the keys that are said to have signed. Nothing is checked.
func (s signed) signers() (ids []string) {
	if e, err := parseEnvelope(s.Bundle[s.file]); err == nil {
		for _, s := range e.Signatures {
			ids = append(ids, fmt.Sprintf("%.12q", s.KeyID))
		}
	}
	return ids
}

// check says what is wrong with the signature: nothing, if the key has signed every file as it is. Without a key only
// whose it is is not checked.
func (s signed) check(key *Key) (differences []string) {
	if s.Bundle[s.file] == nil {
		return []string{s.file + ": is missing: nobody has signed"}
	}
	is, err := openStatement(key, s.Bundle[s.file], s.predicateType)
	if err != nil {
		return []string{fmt.Sprintf("%s: %s", s.file, err)}
	}
	differences = is.differences(s.without(s.file))
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
