package certify

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports/filing"
)

// CommonFlags are the flags of all products that certify.
type CommonFlags struct {
	Subject Subject
	// Kubeconfig is the file that an API server would be given for the webhook.
	Kubeconfig string
	// Hook is a program that loads policies, or "".
	Hook string
	// Timeout is how long an answer may take.
	Timeout time.Duration

	challenge string
	flagSet   *pflag.FlagSet
}

// Register adds the flags.
func (f *CommonFlags) Register(fs *pflag.FlagSet) {
	f.registerWebhook(fs)
	fs.StringVar(&f.Hook, "policy-hook", "", "a program that loads the policies: it gets them as JSON on its standard input")
}

// registerWebhook adds the flags that are not about policies.
func (f *CommonFlags) registerWebhook(fs *pflag.FlagSet) {
	f.flagSet = fs
	f.Subject.register(fs)
	fs.StringVar(&f.Kubeconfig, "authorizer-kubeconfig", "", "the webhook's kubeconfig")
	fs.StringVar(&f.challenge, "challenge", "", "a file of certify challenge, which gives the seed and is answered by the report")
	fs.DurationVar(&f.Timeout, "timeout", Timeout, "how long an answer may take, at most as long as an API server waits")
}

// Prepare checks the flags and reads the challenge, which gives the invocation its seed. It returns nil if there is no
// challenge.
func (f *CommonFlags) Prepare(i *product.Invocation) (*Challenge, error) {
	isSeeded := f.flagSet.Changed("seed") || f.challenge != ""
	isLoaded := isSeeded || f.Hook != ""
	if f.Kubeconfig != "" && !isLoaded {
		return nil, errors.New("--seed is needed, that of the policies which the authorizer holds; or --policy-hook to load them")
	}
	return f.prepareWebhook(i)
}

// prepareWebhook checks the flags that are not about policies, and reads the challenge. It returns nil if there is no
// challenge.
func (f *CommonFlags) prepareWebhook(i *product.Invocation) (*Challenge, error) {
	if f.Kubeconfig == "" {
		return nil, errors.New("--authorizer-kubeconfig is needed: the file that an API server would be given for this webhook")
	}
	challenge, err := f.readChallenge(i)
	if err != nil {
		return nil, err
	}
	if err := f.Subject.Check(); err != nil {
		return nil, fmt.Errorf("--vendor, --product, --product-version, --contact: %w", err)
	}
	if f.Timeout <= 0 || f.Timeout > Timeout {
		return nil, fmt.Errorf("--timeout: %s is not more than 0 and at most %s", f.Timeout, Timeout)
	}
	if f.flagSet.Changed("sign-key") && f.Subject == (Subject{}) {
		return nil, errors.New("--sign-key needs --vendor, --product and --product-version: what is signed is somebody's")
	}
	return challenge, nil
}

// webhook reads the webhook's kubeconfig. It returns nil when a record is verified, because then nobody is asked.
func (f *CommonFlags) webhook(i *product.Invocation) (*Webhook, error) {
	if i.Verifying() {
		return nil, nil
	}
	w, err := LoadWebhook(f.Kubeconfig, "")
	if err != nil {
		return nil, fmt.Errorf("--authorizer-kubeconfig: %w", err)
	}
	w.Timeout = f.Timeout
	return w, nil
}

// readChallenge reads the challenge, if there is one that can be answered now, and gives the invocation its seed.
func (f *CommonFlags) readChallenge(i *product.Invocation) (*Challenge, error) {
	if f.challenge == "" {
		return nil, nil
	}
	raw, err := f.challengeFile(i)
	if err != nil {
		return nil, fmt.Errorf("--challenge: %w", err)
	}
	challenge, err := ParseChallenge(raw, nil)
	if err == nil && !i.Verifying() {
		err = challenge.Check(time.Now())
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("--challenge: %s: %w", f.challenge, err)
	case f.flagSet.Changed("seed") && i.Seed != challenge.Seed:
		return nil, fmt.Errorf("--seed %d: the challenge is for seed %d", i.Seed, challenge.Seed)
	case !f.flagSet.Changed("report-dir"):
		return nil, errors.New("--challenge needs --report-dir: it is the report that answers it")
	}
	if !i.Verifying() {
		i.Seed = challenge.Seed
	}
	return challenge, nil
}

// challengeFile returns the content of the challenge's file. A signed challenge looks like a token, and would be
// removed from the record, so it is recorded as hexadecimal digits.
func (f *CommonFlags) challengeFile(i *product.Invocation) ([]byte, error) {
	input := f.challenge + " (hexadecimal)"
	if i.Verifying() {
		digits, err := i.ReadInput(input)
		if err != nil {
			return nil, err
		}
		return hex.DecodeString(string(digits))
	}
	raw, err := filing.Input(f.challenge)
	if err != nil {
		return nil, err
	}
	i.AddInput(input, hex.EncodeToString(raw))
	return raw, nil
}
