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

// content is the bundle without its signature.
func (b Bundle) content() Bundle {
	out := maps.Clone(b)
	delete(out, signatureFile)
	return out
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
	raw, err := signFiles(key, b.content(), PredicateType, claim{c.Product, c.Seed, c.SuiteDigest, c.Levels})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, signatureFile), raw, 0o644)
}

// signers are the beginnings of the IDs of the keys that a bundle claims to be signed by. Nothing is checked.
func (b Bundle) signers() (ids []string) {
	if e, err := parseEnvelope(b[signatureFile]); err == nil {
		for _, s := range e.Signatures {
			ids = append(ids, fmt.Sprintf("%.12q", s.KeyID))
		}
	}
	return ids
}

// checkSignature says what is wrong with the signature of the bundle: nothing, if the key has signed every file of
// it as it is. Without a key only the signature itself is not checked.
func (b Bundle) checkSignature(key *Key, predicateType string) (differences []string) {
	raw, ok := b[signatureFile]
	if !ok {
		return []string{fmt.Sprintf("%s: the bundle is not signed", signatureFile)}
	}
	s, err := openStatement(key, raw, predicateType)
	if err != nil {
		return []string{fmt.Sprintf("%s: %s", signatureFile, err)}
	}
	differences = s.differences(b.content())
	if c, err := b.Certification(); err == nil && b[certificationFile] != nil {
		claimed, _ := json.Marshal(claim{c.Product, c.Seed, c.SuiteDigest, c.Levels})
		var signed bytes.Buffer
		if json.Compact(&signed, s.Predicate) != nil || !bytes.Equal(signed.Bytes(), claimed) {
			differences = append(differences, fmt.Sprintf("%s: what is signed about the certification is not what %s says", signatureFile, certificationFile))
		}
	}
	return differences
}

// SignedBy says whose signature a bundle carries. With keys, one of them must have signed it.
func (b Bundle) SignedBy(keys []*Key) (signed string, differences []string) {
	return b.signedBy(keys, PredicateType)
}

func (b Bundle) signedBy(keys []*Key, predicateType string) (signed string, differences []string) {
	names := b.signers()
	switch {
	case len(keys) == 0 && b[signatureFile] == nil:
		return "none", nil
	case len(keys) == 0:
		// Whose it is nobody can say without a key; that it is not of this bundle anybody can.
		if differences = b.checkSignature(nil, predicateType); len(differences) > 0 {
			return "not valid", differences
		}
		return fmt.Sprintf("of key %.60s, not checked: --key names one to check it with", strings.Join(names, ", ")), nil
	}
	for _, key := range keys {
		if differences = b.checkSignature(key, predicateType); len(differences) == 0 {
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

// ReportSignedBy is SignedBy for a signature that SignReport has made; nil is none.
func ReportSignedBy(keys []*Key, name string, report, signature []byte) (signed string, differences []string) {
	b := Bundle{name: report}
	if signature != nil {
		b[signatureFile] = signature
	}
	return b.signedBy(keys, ReportPredicate)
}
