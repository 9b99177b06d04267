package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// EventsBy returns the audit events of finished requests by a user that nobody awaited, in no order: those that a program in
// the cluster sent.
func (s *Server) EventsBy(user string) (all []auditv1.Event, err error) {
	for _, raw := range s.Events(user) {
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

// Events returns the audit events of finished requests that contain one of the texts, unless somebody awaited them.
func (s *Server) Events(texts ...string) []json.RawMessage {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	return findEvents(s.events.events, texts)
}

// OpenEvents returns the audit events of the beginning of answers that go on, such as those of open watches, and that
// contain one of the texts.
func (s *Server) OpenEvents(texts ...string) []json.RawMessage {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	open := maps.Clone(s.events.started)
	maps.DeleteFunc(open, func(auditID string, _ json.RawMessage) bool { return s.events.events[auditID] != nil })
	return findEvents(open, texts)
}

// findEvents returns those events that contain one of the texts.
func findEvents(events map[string]json.RawMessage, texts []string) (matches []json.RawMessage) {
	for _, raw := range events {
		if slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(raw, []byte(text)) }) {
			matches = append(matches, raw)
		}
	}
	return matches
}
