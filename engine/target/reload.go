package target

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/authzconf/authzconf/scenarios"
)

const (
	reloadsMetric = "apiserver_authorization_config_controller_automatic_reloads_total"
	// reloadTimeout is more than the minute after which the API server looks at the file even if it saw no change.
	reloadTimeout = 70 * time.Second
	reloadPoll    = 5 * time.Millisecond
)

// Use lets a scenario have the target: for itself if it changes the authorizer
// chain, otherwise beside others. The caller has to call release.
func (t *Target) Use(s *scenarios.Scenario) (release func()) {
	if !s.Reloads() {
		t.users.RLock()
		return t.users.RUnlock
	}
	t.users.Lock()
	return func() {
		defer t.users.Unlock()
		if t.now == t.asked || t.broken != nil {
			return
		}
		// The scenario broke off: those after it must not meet what it left.
		ctx, cancel := context.WithTimeout(context.Background(), reloadTimeout)
		defer cancel()
		t.broken = t.Reload(ctx, t.asked)
	}
}

// Reload puts another chain of fixtures/chains between the recorder's two points, and returns when the API server
// uses it. Only who has the target for itself may call it.
func (t *Target) Reload(ctx context.Context, name string) error {
	between, err := loadMiddle(name)
	if err != nil {
		return err
	}
	return t.reload(ctx, between, name)
}

// reload is Reload of a chain that has been read already.
func (t *Target) reload(ctx context.Context, between middle, name string) error {
	plane, ok := t.cluster.(interface{ ReloadAuthorization(config []byte) error })
	if !ok {
		return errors.New("the AuthorizationConfiguration of this cluster cannot be changed")
	}
	config, err := chain{middle: between, recorder: t.recorder, cacheFields: t.cacheFields()}.config()
	if err != nil {
		return err
	}
	before, err := t.reloads(ctx)
	if err != nil {
		return err
	}
	if err := plane.ReloadAuthorization(config); err != nil {
		return err
	}
	t.between, t.now = between, name
	err = wait.PollUntilContextTimeout(ctx, reloadPoll, reloadTimeout, true, func(ctx context.Context) (bool, error) {
		after, err := t.reloads(ctx)
		if err == nil && after["failure"] > before["failure"] {
			err = fmt.Errorf("the API server refused the authorizer chain %q", name)
		}
		return after["success"] > before["success"], err
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("the API server did not take over the authorizer chain %q within %s", name, reloadTimeout)
	}
	return err
}

// reloads are the API server's counts by status.
func (t *Target) reloads(ctx context.Context) (map[string]float64, error) {
	families, err := t.scrapeNamed(ctx, reloadsMetric)
	if err != nil {
		return nil, err
	}
	return gaugeValues(families[reloadsMetric], "status"), nil
}

// cacheFields says whether the version knows how to switch a webhook's cache off.
func (t *Target) cacheFields() bool { return !minorBefore(t.Cell.Kubernetes, 34) }
