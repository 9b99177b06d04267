package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/clusters/image"
)

// LoadImage puts an image on every node. It is an error where the target has no
// nodes: scenarios that need them are not selected there.
func (t *Target) LoadImage(ctx context.Context, archive []byte) error {
	nodes, ok := t.cluster.(image.Loader)
	if !ok {
		return errors.New("this cluster has no nodes to put an image on")
	}
	return nodes.LoadImage(ctx, archive)
}

// EventsBy are the audit events of finished requests by a user that nobody
// awaited, in no order: those that a program in the cluster sent.
func (t *Target) EventsBy(user string) ([]auditv1.Event, error) {
	t.events.mu.Lock()
	defer t.events.mu.Unlock()
	var all []auditv1.Event
	for _, raw := range t.events.events {
		var event auditv1.Event
		if err := json.Unmarshal(raw, &event); err != nil {
			return nil, fmt.Errorf("an audit event cannot be read: %w", err)
		}
		if event.User.Username == user {
			all = append(all, event)
		}
	}
	return all, nil
}
