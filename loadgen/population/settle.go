package population

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/scenarios"
)

// settlePatience is how long permissions may take to get around.
const settlePatience = 30 * time.Second

// Settle waits until a server answers all variants that are used on it as they
// expect. It asks as an agent that takes no part, so that no part-taker is known
// afterwards.
func (o *Population) Settle(ctx context.Context, anonymous *rest.Config, p *profile.Profile, server profile.Server) error {
	client, err := rest.HTTPClientFor(anonymous)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	deadline := time.Now().Add(settlePatience)
	for _, c := range p.Comparisons {
		for _, side := range []profile.Side{c.A, c.B} {
			if side.Server != server {
				continue
			}
			variant, err := profile.VariantNamed(side.Variant)
			if err != nil {
				return err
			}
			if err := o.settleVariant(ctx, client, anonymous.Host, p, variant, deadline); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *Population) settleVariant(ctx context.Context, client *http.Client, host string, p *profile.Profile, variant profile.Variant, deadline time.Time) error {
	last := p.Identities(variant)
	q := asking(variant, last+1, last)
	if variant.As == profile.OtherNode {
		q.node, q.imp = 0, &scenarios.Impersonate{User: "system:node:" + nodeName(0)}
	}
	for kind, weight := range p.Plan(0).Mix {
		if weight == 0 || profile.Kinds()[kind] == "watch" {
			continue
		}
		for {
			status, text, err := o.try(ctx, client, host, request(q, kind, 0, p.PodsPerNode, func(int) []string { return []string{o.settle[variant.Name]} }).Header, q, kind, p)
			if err != nil {
				return err
			}
			if status == Expected(variant) {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s of the variant %s is answered with %d, not %d, after %s: %s", profile.Kinds()[kind], variant.Name, status, Expected(variant), settlePatience, text)
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
func (o *Population) try(ctx context.Context, client *http.Client, host string, h http.Header, q ask, kind int, p *profile.Profile) (int, string, error) {
	path, query := target(kind, q.node, p.PodsPerNode, 0)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, host+path+"?"+query, nil)
	if err != nil {
		return 0, "", err
	}
	r.Header = h
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

// Delete removes all that Create has created, by its label.
func Delete(ctx context.Context, admin *rest.Config, p *profile.Profile) error {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	marked, now := metav1.ListOptions{LabelSelector: labelKey}, int64(0)
	at := metav1.DeleteOptions{GracePeriodSeconds: &now}
	errs := []error{
		client.RbacV1().ClusterRoleBindings().DeleteCollection(ctx, at, marked),
		client.RbacV1().ClusterRoles().DeleteCollection(ctx, at, marked),
	}
	spaces := []string{podSpace}
	for _, name := range p.Used() {
		spaces = append(spaces, "storm-"+name)
	}
	for _, ns := range spaces {
		errs = append(errs,
			client.CoreV1().Pods(ns).DeleteCollection(ctx, at, marked),
			client.CoreV1().ServiceAccounts(ns).DeleteCollection(ctx, at, marked),
			client.CoreV1().Namespaces().Delete(ctx, ns, at))
	}
	return errors.Join(append(errs, client.CoreV1().Nodes().DeleteCollection(ctx, at, marked))...)
}
