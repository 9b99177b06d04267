package record

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"

	"github.com/authzconf/authzconf/reports/filing"
)

const (
	// payloadType is the media type of in-toto statements, statementType the version of them that is written and read.
	payloadType   = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"

	// MaxEnvelope is how many bytes a signature may have.
	MaxEnvelope = 1 << 20
)

// Statement says which files are meant, by their digests, and what is claimed about them
// (https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md).
type Statement struct {
	Type          string          `json:"_type"`
	Subject       []fileDigest    `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
}

type fileDigest struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// SignFiles makes the DSSE envelope (https://github.com/secure-systems-lab/dsse) for files, with the claim about them.
func SignFiles(key *Key, files map[string][]byte, predicateType string, predicate any) ([]byte, error) {
	if !key.private {
		return nil, errors.New("it is a public key, and signing takes the private one")
	}
	claim, err := json.Marshal(predicate)
	if err != nil {
		return nil, err
	}
	s := Statement{Type: statementType, PredicateType: predicateType, Predicate: claim}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		s.Subject = append(s.Subject, fileDigest{Name: name, Digest: map[string]string{"sha256": Digest(files[name])}})
	}
	payload, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	signer, err := dsse.NewEnvelopeSigner(key.sv)
	if err != nil {
		return nil, err
	}
	envelope, err := signer.SignPayload(context.Background(), payloadType, payload)
	if err != nil {
		return nil, err
	}
	out, err := json.MarshalIndent(envelope, "", "  ")
	return append(out, '\n'), err
}

// OpenStatement returns the statement of an envelope that this key has signed, or anybody without a key.
func OpenStatement(key *Key, raw []byte, predicateType string) (*Statement, error) {
	e, err := ParseEnvelope(raw)
	if err != nil {
		return nil, err
	}
	payload, err := e.DecodeB64Payload()
	if err != nil {
		return nil, errors.New("what is signed cannot be read")
	}
	if key != nil {
		verifier, err := dsse.NewEnvelopeVerifier(key.sv)
		if err != nil {
			return nil, err
		}
		if _, payload, err = verifier.VerifyAndDecode(context.Background(), e); err != nil {
			return nil, fmt.Errorf("it is not signed by key %s", key.ID())
		}
	}
	var s Statement
	switch {
	case e.PayloadType != payloadType:
		return nil, fmt.Errorf("what is signed is %.80q, not an in-toto statement", e.PayloadType)
	case DecodeStrictly(payload, &s) != nil || s.Type != statementType:
		return nil, errors.New("what is signed is not an in-toto statement v1")
	case s.PredicateType != predicateType:
		return nil, fmt.Errorf("what is signed is about %.80q, and not %q", s.PredicateType, predicateType)
	}
	return &s, nil
}

// ParseEnvelope reads a DSSE envelope, and returns an error unless it carries a signature.
func ParseEnvelope(raw []byte) (*dsse.Envelope, error) {
	var e dsse.Envelope
	if len(raw) > MaxEnvelope || DecodeStrictly(raw, &e) != nil || len(e.Signatures) == 0 {
		return nil, errors.New("it is not a DSSE envelope with a signature")
	}
	return &e, nil
}

// Differences lists the files that differ from what was signed, a line each.
func (s *Statement) Differences(files map[string][]byte) (out []string) {
	signed := map[string]bool{}
	for _, subject := range s.Subject {
		signed[subject.Name] = true
		switch content, ok := files[subject.Name]; {
		case !ok:
			out = append(out, fmt.Sprintf("%.80s: it was signed, and is missing", subject.Name))
		case subject.Digest["sha256"] != Digest(content):
			out = append(out, fmt.Sprintf("%.80s: it is not what was signed", subject.Name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !signed[name] {
			out = append(out, fmt.Sprintf("%.80s: it was not signed", name))
		}
	}
	return out
}

const maxKey = 64 << 10

// Key verifies signatures and, if it is private, signs.
type Key struct {
	sv      *signerverifier.ED25519SignerVerifier
	private bool
}

// ParseKey reads an Ed25519 key in PEM, as `openssl genpkey -algorithm ed25519` writes it: a private key in PKCS #8, or
// a public key as SubjectPublicKeyInfo.
func ParseKey(raw []byte) (*Key, error) {
	loaded, err := signerverifier.LoadKey(raw)
	switch {
	case err != nil:
		return nil, errors.New("it is not a key in PEM (expected an Ed25519 key, as `authzconf keygen` writes it)")
	case loaded.KeyType != signerverifier.ED25519KeyType:
		return nil, fmt.Errorf("it is a key for %s, and only Ed25519 is used here", loaded.KeyType)
	}
	sv, err := signerverifier.NewED25519SignerVerifierFromSSLibKey(loaded)
	if err != nil {
		return nil, errors.New("the key cannot be used")
	}
	return &Key{sv: sv, private: loaded.KeyVal.Private != ""}, nil
}

// LoadKey reads the file of a key. It refuses a private key that others can read, because others may have it by now.
func LoadKey(path string) (*Key, error) {
	f, err := filing.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxKey))
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if key.private && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: others can read this private key (mode %04o, expected 0600)", path, info.Mode().Perm())
	}
	return key, nil
}

// LoadPrivateKey reads the file of a key that can sign.
func LoadPrivateKey(path string) (*Key, error) {
	key, err := LoadKey(path)
	if err != nil {
		return nil, err
	}
	if !key.private {
		return nil, fmt.Errorf("%s is a public key, and signing takes the private one", path)
	}
	return key, nil
}

// ID returns the name of the key in envelopes, which is a digest of its public part.
func (k *Key) ID() string {
	id, _ := k.sv.KeyID() // never fails
	return id
}

// NewKey writes a new key to two new files: the private part, which only this user can read, and the public part in a
// file named .pub.
func NewKey(path string) (*Key, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	open, err2 := x509.MarshalPKIXPublicKey(public)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	raw := pem.EncodeToMemory(&pem.Block{Type: signerverifier.PrivateKeyPEM, Bytes: secret})
	if err := createFile(path, raw, 0o600); err != nil {
		return nil, err
	}
	if err := createFile(path+".pub", pem.EncodeToMemory(&pem.Block{Type: signerverifier.PublicKeyPEM, Bytes: open}), 0o644); err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	return ParseKey(raw)
}

func createFile(path string, content []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// Private reports whether the key can sign.
func (k *Key) Private() bool { return k.private }

// ReportPredicate is what the signature of a report claims: its signer vouches for the outcome in it.
const ReportPredicate = "https://authzconf.dev/report/v1alpha1"

// SignReport signs a report, which is a file that names the record and with it all evidence. outcome is what the report
// says, so that somebody who has only the signature sees what it is about.
func SignReport(key *Key, name string, report []byte, outcome any) ([]byte, error) {
	return SignFiles(key, map[string][]byte{name: report}, ReportPredicate, outcome)
}

// CheckReport returns whose signature a report has. signature is nil if it has none. If keys are given, one of them
// must have signed it. Each difference is a line.
func CheckReport(keys []*Key, signature []byte, name string, report []byte, outcome any) (signer string, differences []string) {
	if signature == nil && len(keys) == 0 {
		return "none", nil
	}
	if signature == nil {
		return "not valid", []string{"signature: it is missing: nobody has signed"}
	}
	if len(keys) == 0 {
		// Without a key nobody can say whose signature it is, but anybody can say that it is not of this report.
		if differences = checkSignedReport(nil, signature, name, report, outcome); len(differences) > 0 {
			return "not valid", differences
		}
		return "of key " + strings.Join(signers(signature), ", ") + ", not checked: --key names one to check it with", nil
	}
	for _, key := range keys {
		if differences = checkSignedReport(key, signature, name, report, outcome); len(differences) == 0 {
			return fmt.Sprintf("valid, of key %.12s", key.ID()), nil
		}
	}
	return "not valid", differences
}

func checkSignedReport(key *Key, signature []byte, name string, report []byte, outcome any) []string {
	s, err := OpenStatement(key, signature, ReportPredicate)
	if err != nil {
		return []string{"signature: " + err.Error()}
	}
	differences := s.Differences(map[string][]byte{name: report})
	outcomeText, err := json.Marshal(outcome)
	if err != nil {
		return append(differences, err.Error())
	}
	var signed bytes.Buffer
	if json.Compact(&signed, s.Predicate) != nil || !bytes.Equal(signed.Bytes(), outcomeText) {
		differences = append(differences, "signature: what is signed about the report is not what the report says")
	}
	return differences
}

// signers returns the beginnings of the IDs of the keys that are said to have signed. Nothing is checked.
func signers(signature []byte) (ids []string) {
	e, err := ParseEnvelope(signature)
	if err != nil {
		return nil
	}
	for _, s := range e.Signatures {
		ids = append(ids, fmt.Sprintf("%.12q", s.KeyID))
	}
	return ids
}
