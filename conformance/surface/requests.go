package surface

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Who sends the requests: an administrator, who may impersonate anybody, as a viewer, who may list and watch; and a stranger, who may
// not impersonate, as the same viewer.
const (
	viewer   = "authzconf-viewer"
	stranger = "authzconf-stranger"
)

// requestPath is what all requests ask for.
const requestPath = "/api/v1/namespaces/default/configmaps"

// observeRequests sends requests that impersonate, allowed ones and refused ones, and records what the server counts and logs
// meanwhile.
func (p *plan) observeRequests(ctx context.Context, s *server.Server, a admin, surface *Surface) error {
	if err := allowViewer(ctx, s, a); err != nil {
		return err
	}
	refused, err := s.UserClient(scenarios.Requestor{User: stranger}, &scenarios.Impersonate{User: viewer}, func(*http.Request) {})
	if err != nil {
		return err
	}
	if err := p.send(ctx, 1, a, refused); err != nil { // connections and caches are there from here on
		return err
	}
	counts, err := readIndicators(ctx, s)
	if err != nil {
		return err
	}
	logText, err := readLog(s)
	if err != nil {
		return err
	}
	if surface.Before, err = readProcess(s.PIDs().KubeAPIServer); err != nil {
		return err
	}
	if err := p.send(ctx, p.requests, a, refused); err != nil {
		return err
	}
	if surface.After, err = readProcess(s.PIDs().KubeAPIServer); err != nil {
		return err
	}
	if surface.Indicators, err = readIndicators(ctx, s); err != nil {
		return err
	}
	for labels, before := range counts {
		surface.Indicators[labels] -= before
	}
	maps.DeleteFunc(surface.Indicators, func(_ string, n int) bool { return n == 0 })
	now, err := readLog(s)
	surface.Logged = findMentions(string(now[min(len(logText), len(now)):]))
	return err
}

// allowViewer lets the viewer read, and returns when the server heeds that.
func allowViewer(ctx context.Context, s *server.Server, a admin) error {
	client, err := kubernetes.NewForConfig(s.Admin())
	if err != nil {
		return err
	}
	_, err = client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: viewer},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: viewer}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewer},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: viewer}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		_, last = a.get(ctx, requestPath, impersonateUser, viewer)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the grant of the viewer is not heeded: %w", errors.Join(err, last))
	}
	return nil
}

// impersonateUser is the header that names the user to impersonate.
const impersonateUser = "Impersonate-User"

// send sends a number of requests that are allowed, and as many that are refused.
func (p *plan) send(ctx context.Context, n int, a admin, refused *http.Client) error {
	for range n {
		if _, err := a.get(ctx, requestPath, impersonateUser, viewer); err != nil {
			return err
		}
		if _, err := (admin{refused, a.host}).get(ctx, requestPath); err == nil || !strings.Contains(err.Error(), "403 Forbidden") {
			return fmt.Errorf("a request of somebody who may not impersonate was not refused: %w", err)
		}
	}
	return nil
}

// readIndicators reads how often the SLI counted what the requests asked for, by its labels.
func readIndicators(ctx context.Context, s *server.Server) (map[string]int, error) {
	families, err := s.Scrape(ctx, server.ObjectivesMetric)
	counts := map[string]int{}
	for _, m := range families[server.ObjectivesMetric].GetMetric() {
		labels := seq.Map(m.GetLabel(), func(l *dto.LabelPair) string { return fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()) })
		if slices.Contains(labels, `resource="configmaps"`) {
			counts[strings.Join(labels, ",")] = int(m.GetHistogram().GetSampleCount())
		}
	}
	return counts, err
}

// findMentions returns the lines of a log that name who sent the requests, whom they impersonated, or impersonation.
func findMentions(log string) []string {
	lines := []string{}
	for line := range strings.Lines(log) {
		for _, word := range []string{viewer, stranger, "mpersonat"} {
			if strings.Contains(line, word) {
				lines = append(lines, strings.TrimSpace(line))
				break
			}
		}
	}
	return lines
}
