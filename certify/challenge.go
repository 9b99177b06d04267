package certify

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"time"
)

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
	if err := strict(s.Predicate, c); err != nil || len(c.Nonce) != 64 || !c.Begins.Before(c.Ends) {
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

// Made says who has made a bundle, as far as that can be known. With keys, a challenge in it must be by one of them:
// who has signed both has asked himself.
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
