package certification

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// Webhooks returns the two endpoints of a conditional authorizer, whose kubeconfig a flag names.
func Webhooks(flag, kubeconfig, conditionsContext string, timeout time.Duration) (out []*certify.Webhook, err error) {
	for _, name := range []string{"", conditionsContext} {
		w, err := certify.LoadWebhook(kubeconfig, name)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		w.Timeout = timeout
		out = append(out, w)
	}
	return out, nil
}

// HookLoader returns a loader that runs a program of the vendor, which loads the policies.
func HookLoader(program string, stderr io.Writer) Loader {
	return func(ctx context.Context, all []vectors.Policy) error {
		raw, err := PoliciesJSON(all)
		if err != nil {
			return err
		}
		return certify.RunHook(ctx, program, raw, stderr)
	}
}
