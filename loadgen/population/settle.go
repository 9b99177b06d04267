package population

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/profile"
)

// settleTimeout is how long permissions may take to get around.
const settleTimeout = 30 * time.Second

// Settle waits until a server answers all variants that are used on it as they expect. It asks as an agent that
// takes no part, so that no part-taker is known afterwards.
func (o *Population) Settle(ctx context.Context, anonymous *rest.Config, p *profile.Profile, server profile.Server) error {
	client, err := rest.HTTPClientFor(anonymous)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	deadline := time.Now().Add(settleTimeout)
	variants, err := p.Variants()
	if err != nil {
		return err
	}
	for _, variant := range variants {
		if !p.UsedOn(variant.Name, server) {
			continue
		}
		if err := o.settleVariant(ctx, client, anonymous.Host, p, variant, deadline); err != nil {
			return err
		}
	}
	return nil
}

func (o *Population) settleVariant(ctx context.Context, client *http.Client, host string, p *profile.Profile, variant profile.Variant, deadline time.Time) error {
	q := asking(p, variant, p.Agents())
	for kind, weight := range p.Plan(0).Mix {
		if weight == 0 || profile.Kinds()[kind] == "watch" || profile.Kinds()[kind] == profile.Review {
			continue
		}
		asked := request(q, kind, 0, p.PodsPerNode, func(int) []string { return []string{o.settle[variant.Name]} })
		for {
			status, text, err := try(ctx, client, host, asked)
			if err != nil {
				return err
			}
			if status == Expected(variant) {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s of the variant %s is answered with %d, not %d, after %s: %s", profile.Kinds()[kind], variant.Name, status, Expected(variant), settleTimeout, text)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// try asks once.
func try(ctx context.Context, client *http.Client, host string, asked agent.Request) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, host+asked.Path+"?"+asked.Query, nil)
	if err != nil {
		return 0, "", err
	}
	r.Header = asked.Header
	resp, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 500))
	return resp.StatusCode, fmt.Sprintf("%q", body), err
}

// Expected is the status that a variant's answers should have.
func Expected(variant profile.Variant) int {
	if variant.Denied {
		return http.StatusForbidden
	}
	return http.StatusOK
}
