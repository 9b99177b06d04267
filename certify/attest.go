package certify

import (
	"bytes"
	"fmt"

	"github.com/authzconf/authzconf/reports/record"
)

// Attest returns who made a report, as far as that can be known. If keys are given, the challenge that the report
// answers must be signed by one of them. hasSigned reports whether a key has signed the report: then the certifier made
// the report himself.
func (t *Trial[A]) Attest(keys []*record.Key, hasSigned func(*record.Key) bool) (maker string, differences []string) {
	const declared = "self-declared"
	if t.Challenge == nil {
		return declared, nil
	}
	if len(keys) == 0 {
		return declared + ", for a challenge that nobody has checked: --key names the certifier's", nil
	}
	for _, key := range keys {
		if _, err := ParseChallenge(t.Challenge.raw, key); err != nil {
			differences = []string{fmt.Sprintf("challenge: %v", err)}
			continue
		}
		if hasSigned(key) {
			return fmt.Sprintf("witnessed by key %.12s for challenge %d", key.ID(), t.Challenge.Seed), nil
		}
		return fmt.Sprintf("%s, for the challenge of key %.12s", declared, key.ID()), nil
	}
	return declared, differences
}

// Answers reports whether the report answers a challenge.
func (t *Trial[A]) Answers(challenge []byte) bool {
	return t.Challenge != nil && bytes.Equal(t.Challenge.raw, challenge)
}
