package deputy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/clusters"
)

// auditLog is an API server's audit log that is read while it grows.
type auditLog struct {
	// sendMarked sends a request with a marker directly to the API server, and not to the proxy.
	sendMarked func(ctx context.Context, marker string) error
	// find returns the events that contain one of the texts.
	find    func(texts ...string) ([]json.RawMessage, error)
	timeout time.Duration // how long it may take until an event is in the log
}

// settle waits until everything that was sent before is in the log. It sends a request directly to the API server, and
// waits for that.
func (l *auditLog) settle(ctx context.Context, marker string) error {
	if err := l.sendMarked(ctx, marker); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, l.timeout, true, func(context.Context) (bool, error) {
		events, err := l.find(marker)
		return len(events) > 0, err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf(
			"a request to the cluster of the kubeconfig did not get into the audit log within %s: the log is of another cluster, or its policy leaves out lists of pods; nothing is judged",
			l.timeout,
		)
	}
	return err
}

// eventsOf returns the events of a run and, if a path is given, those that name the path.
func (l *auditLog) eventsOf(ctx context.Context, run, path string) ([]json.RawMessage, error) {
	// An event is written after its answer, so the events of the run come before that of the second request.
	for _, last := range []string{"-end", "-over"} {
		if err := l.settle(ctx, run+last); err != nil {
			return nil, err
		}
		if !clusters.Pause(ctx, 250*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
	return l.find(run, cmp.Or(path, run))
}

// newRun returns a new beginning for the markers of a part of the suite.
func newRun() string { return fmt.Sprintf("az%010x", rand.Uint64()>>24) }

// truncatedNow returns the time with the precision of audit events.
func truncatedNow() time.Time { return time.Now().Truncate(time.Microsecond) }

// decodeEvent returns an event that shows who arrived, or nil for any other. At the stage RequestReceived nobody is
// impersonated yet.
func decodeEvent(raw json.RawMessage) *auditv1.Event {
	var e auditv1.Event
	isEvent := json.Unmarshal(raw, &e) == nil && e.AuditID != ""
	if !isEvent || e.Stage == auditv1.StageRequestReceived {
		return nil
	}
	return &e
}

// arrivingUser returns the user as whom a request was made, according to its event.
func arrivingUser(e *auditv1.Event) authenticationv1.UserInfo {
	if e.ImpersonatedUser != nil {
		return *e.ImpersonatedUser
	}
	return e.User
}

// decisionOf returns the annotation of the authorization filter. It is empty if the request did not get that far
// (k8s.io/apiserver/pkg/endpoints/filters/authorization.go).
func decisionOf(e *auditv1.Event) string { return e.Annotations["authorization.k8s.io/decision"] }

// statusCode returns the code of the answer in an event, or 0 if the event has none.
func statusCode(e *auditv1.Event) int {
	if e.ResponseStatus == nil {
		return 0
	}
	return int(e.ResponseStatus.Code)
}
