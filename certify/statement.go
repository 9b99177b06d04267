package certify

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
	// payloadType is the media type of in-toto statements, statementType the version of them that is written and
	// read.
	payloadType   = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"

	maxEnvelope = 1 << 20
)

// statement says which files are meant, by their digests, and what is claimed about them
// (https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md).
type statement struct {
	Type          string          `json:"_type"`
	Subject       []fileDigest    `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
}

// fileDigest is one file.
type fileDigest struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// signFiles makes the DSSE envelope (https://github.com/secure-systems-lab/dsse) for files, by their names. The
// predicate is what is claimed about them.
func signFiles(key *Key, files map[string][]byte, predicateType string, predicate any) ([]byte, error) {
	if !key.private {
		return nil, errors.New("it is a public key, and signing takes the private one")
	}
	claim, err := json.Marshal(predicate)
	if err != nil {
		return nil, err
	}
	s := statement{Type: statementType, PredicateType: predicateType, Predicate: claim}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		s.Subject = append(s.Subject, fileDigest{Name: name, Digest: map[string]string{"sha256": digest(files[name])}})
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

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// openStatement returns the statement of an envelope that this key has signed, or anybody without a key. Its errors say
// why it is not one.
func openStatement(key *Key, raw []byte, predicateType string) (*statement, error) {
	e, err := parseEnvelope(raw)
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
	var s statement
	switch {
	case e.PayloadType != payloadType:
		return nil, fmt.Errorf("what is signed is %.80q, not an in-toto statement", e.PayloadType)
	case strict(payload, &s) != nil || s.Type != statementType:
		return nil, errors.New("what is signed is not an in-toto statement v1")
	case s.PredicateType != predicateType:
		return nil, fmt.Errorf("what is signed is about %.80q, and not %q", s.PredicateType, predicateType)
	}
	return &s, nil
}

func parseEnvelope(raw []byte) (*dsse.Envelope, error) {
	var e dsse.Envelope
	if len(raw) > maxEnvelope || strict(raw, &e) != nil || len(e.Signatures) == 0 {
		return nil, errors.New("it is not a DSSE envelope with a signature")
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

// differences says which files are not what was signed, one line for each.
func (s *statement) differences(files map[string][]byte) (out []string) {
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
