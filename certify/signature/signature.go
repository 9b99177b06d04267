// Package signature signs the files of a folder, and says which of them are no
// longer what was signed. A signature is a DSSE envelope
// (https://github.com/secure-systems-lab/dsse) around an in-toto statement
// (https://in-toto.io/Statement/v1) by an Ed25519 key, which cosign, in-toto and
// a few lines of any language can check too.
package signature

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

const (
	// PayloadType is the media type of in-toto statements, StatementType the
	// version of them that is written and read.
	PayloadType   = "application/vnd.in-toto+json"
	StatementType = "https://in-toto.io/Statement/v1"

	maxEnvelope = 1 << 20
)

// Statement says which files are meant, by their digests, and what is claimed
// about them (https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md).
type Statement struct {
	Type          string          `json:"_type"`
	Subject       []Subject       `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
}

// Subject is one file.
type Subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// Sign makes the envelope for files, by their names. The predicate is what is
// claimed about them.
func Sign(key *Key, files map[string][]byte, predicateType string, predicate any) ([]byte, error) {
	if !key.private {
		return nil, errors.New("it is a public key, and signing takes the private one")
	}
	claim, err := json.Marshal(predicate)
	if err != nil {
		return nil, err
	}
	s := Statement{Type: StatementType, PredicateType: predicateType, Predicate: claim}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		s.Subject = append(s.Subject, Subject{Name: name, Digest: map[string]string{"sha256": digest(files[name])}})
	}
	payload, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	signer, err := dsse.NewEnvelopeSigner(key.sv)
	if err != nil {
		return nil, err
	}
	envelope, err := signer.SignPayload(context.Background(), PayloadType, payload)
	if err != nil {
		return nil, err
	}
	out, err := json.MarshalIndent(envelope, "", "  ")
	return append(out, '\n'), err
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Verify returns the statement of an envelope that this key has signed. Its
// errors say why it is not one.
func Verify(key *Key, raw []byte, predicateType string) (*Statement, error) {
	e, err := parse(raw)
	if err != nil {
		return nil, err
	}
	verifier, err := dsse.NewEnvelopeVerifier(key.sv)
	if err != nil {
		return nil, err
	}
	_, payload, err := verifier.VerifyAndDecode(context.Background(), e)
	if err != nil {
		return nil, fmt.Errorf("it is not signed by key %s", key.ID())
	}
	var s Statement
	switch {
	case e.PayloadType != PayloadType:
		return nil, fmt.Errorf("what is signed is %.80q, and no in-toto statement", e.PayloadType)
	case strict(payload, &s) != nil || s.Type != StatementType:
		return nil, errors.New("what is signed is no in-toto statement v1")
	case s.PredicateType != predicateType:
		return nil, fmt.Errorf("what is signed is about %.80q, and not %q", s.PredicateType, predicateType)
	}
	return &s, nil
}

// Signers are the beginnings of the IDs of the keys that an envelope names.
// Nothing is checked.
func Signers(raw []byte) (ids []string, err error) {
	e, err := parse(raw)
	if err != nil {
		return nil, err
	}
	for _, s := range e.Signatures {
		ids = append(ids, fmt.Sprintf("%.12q", s.KeyID))
	}
	return ids, nil
}

func parse(raw []byte) (*dsse.Envelope, error) {
	var e dsse.Envelope
	if len(raw) > maxEnvelope || strict(raw, &e) != nil || len(e.Signatures) == 0 {
		return nil, errors.New("it is no DSSE envelope with a signature")
	}
	return &e, nil
}

// strict decodes one JSON value with known fields.
func strict(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind it")
	}
	return nil
}

// Differences says which files are not what was signed, one line for each.
func (s *Statement) Differences(files map[string][]byte) (out []string) {
	signed := map[string]bool{}
	for _, subject := range s.Subject {
		signed[subject.Name] = true
		switch content, ok := files[subject.Name]; {
		case !ok:
			out = append(out, fmt.Sprintf("%.80s: it was signed, and is missing", subject.Name))
		case subject.Digest["sha256"] != digest(content):
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
