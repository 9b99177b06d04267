package certify

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/authzconf/authzconf/reports/record"
)

// challengePredicate is what the signature of a challenge claims: its signer wants the challenge to be answered.
const challengePredicate = "https://authzconf.dev/challenge/v1alpha1"

// Challenge is what a certifier wants to have answered, under a seed that nobody knew before, until it ends.
type Challenge struct {
	Seed   int64     `json:"seed"`
	Nonce  string    `json:"nonce"`
	Begins time.Time `json:"begins"`
	Ends   time.Time `json:"ends"`

	// raw is the envelope that contains the signature.
	raw []byte
}

// nonceBytes is the length of a nonce in bytes.
const nonceBytes = 32

// clockSkew is by how much the clock of whoever answers may be behind the certifier's.
const clockSkew = time.Minute

// NewChallenge draws a seed and a nonce, and signs them.
func NewChallenge(key *record.Key, valid time.Duration) (raw []byte, c *Challenge, err error) {
	nonce := make([]byte, nonceBytes)
	if _, err := rand.Read(nonce); err != nil {
		return nil, nil, err
	}
	seed, err := rand.Int(rand.Reader, big.NewInt(1<<53)) // every reader of JSON accepts numbers up to this
	if err != nil {
		return nil, nil, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	c = &Challenge{Seed: seed.Int64(), Nonce: hex.EncodeToString(nonce), Begins: now, Ends: now.Add(valid)}
	raw, err = record.SignFiles(key, map[string][]byte{"nonce": nonce}, challengePredicate, c)
	return raw, c, err
}

// ParseChallenge reads a challenge that a key has signed. Without a key, the signature is not checked.
func ParseChallenge(raw []byte, key *record.Key) (*Challenge, error) {
	s, err := record.OpenStatement(key, raw, challengePredicate)
	if err != nil {
		return nil, err
	}
	c := &Challenge{}
	err = record.DecodeStrictly(s.Predicate, c)
	isComplete := len(c.Nonce) == 2*nonceBytes && c.Begins.Before(c.Ends)
	if err != nil || !isComplete {
		return nil, errors.New("what is signed is not a challenge")
	}
	c.raw = raw
	return c, nil
}

// Check returns why the challenge cannot be answered at a given time, or nil.
func (c *Challenge) Check(at time.Time) error {
	switch {
	case at.Before(c.Begins.Add(-clockSkew)):
		return fmt.Errorf("it is from %s, which has not come yet", c.Begins.Format(time.RFC3339))
	case at.After(c.Ends):
		return fmt.Errorf("it ended at %s: ask the certifier for another one", c.Ends.Format(time.RFC3339))
	}
	return nil
}

// circumstances are what a run records about itself beside the answers.
type circumstances struct {
	// Suite is the digest of everything that was to be asked.
	Suite string `json:"suite"`
	// Began and Ended are when the questions were asked.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	// Certificates are the SHA-256 digests of the certificates that the webhook has shown.
	Certificates []string `json:"certificates,omitempty"`
	// Stopped says why the run ended before everything was asked.
	Stopped string `json:"stopped,omitempty"`
	// Problem says why a part of the run could not be carried out.
	Problem string `json:"problem,omitempty"`
}

// compare returns why a run with a seed does not answer the challenge.
func (c *Challenge) compare(seed int64, run *circumstances) (differences []string) {
	add := func(format string, args ...any) {
		differences = append(differences, "challenge: "+fmt.Sprintf(format, args...))
	}
	if c.Seed != seed {
		add("its seed is %d, and %d was asked under", c.Seed, seed)
	}
	for _, at := range []time.Time{run.Began, run.Ended} {
		if err := c.Check(at); err != nil {
			add("at %s: %v", at.Format(time.RFC3339), err)
		}
	}
	if run.Ended.Before(run.Began) {
		add("it was answered from %s until %s", run.Began.Format(time.RFC3339), run.Ended.Format(time.RFC3339))
	}
	if len(run.Certificates) != 1 {
		add("the webhook showed %d certificates, and an answer is by one", len(run.Certificates))
	}
	return differences
}
