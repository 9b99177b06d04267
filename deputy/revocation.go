package deputy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/clusters/local"
)

// revocationEvidence is what was seen while the credentials of the first person became worthless, with a watch of that person
// open.
type revocationEvidence struct {
	Run       string `json:"run"`
	WatchCode int    `json:"watchCode"`
	// Revoked is when the command had done it.
	Revoked time.Time `json:"revoked"`
	// Last is the last request of the person from then on: the first that was refused, or that when the time was up.
	Last struct {
		At      time.Time `json:"at"`
		Code    int       `json:"code"`
		Refused bool      `json:"refused,omitempty"`
	} `json:"last"`
	// WatchEnded is when the watch did; none if it was open to the end.
	WatchEnded *time.Time `json:"watchEnded,omitempty"`
	// Events are those of all these requests.
	Events []json.RawMessage `json:"events,omitempty"`
}

// revoke opens a watch, takes the person's credentials away, and tries until the proxy refuses them.
func (ep *endpoint) revoke(ctx context.Context, command string) (*revocationEvidence, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e, who := &revocationEvidence{Run: newRun()}, ep.people[0]
	ask := func(query string) (*http.Response, error) {
		return ep.get(ctx, podsIn(ep.namespace)+"?fieldSelector=metadata.name%3D"+markerOf(e.Run, 0, 1)+query, who)
	}
	watch, err := ask("&watch=true&timeoutSeconds=600")
	if err != nil {
		return nil, fmt.Errorf("the watch: %w", err)
	}
	defer func() { _ = watch.Body.Close() }()
	ended := make(chan time.Time, 1)
	go func() {
		_, _ = io.Copy(io.Discard, watch.Body)
		ended <- time.Now()
	}()
	e.WatchCode = watch.StatusCode
	out, err := exec.CommandContext(ctx, "/bin/sh", "-c", command).CombinedOutput()
	if err != nil {
		return nil, &local.UsageError{Problem: fmt.Sprintf("--revoke-command: %v: %.300q", err, out)}
	}
	e.Revoked = now()
	for deadline := time.Now().Add(ep.timeout); !e.Last.Refused && time.Now().Before(deadline); {
		var list struct{ Kind string }
		e.Last.At, e.Last.Code = now(), 0
		resp, err := ask("")
		if err == nil {
			e.Last.Code = resp.StatusCode
			err = errors.Join(json.NewDecoder(resp.Body).Decode(&list), resp.Body.Close())
		}
		e.Last.Refused = err != nil || list.Kind == "" || e.Last.Code/100 != 2 // a login page may be a 200
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return nil, err
		}
	}
	select {
	case at := <-ended:
		e.WatchEnded = &at
	case <-time.After(time.Until(e.Revoked.Add(ep.timeout))):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	e.Events, err = ep.trail.since(ctx, e.Run, "")
	return e, err
}

// judge holds the proxy to a refusal, and to nobody else arriving. That a watch stays open is told, and nothing more: an API
// server does not end those of a token that it no longer takes either.
func (e *revocationEvidence) judge(part *Part, who *Identity) error {
	if e.Last.At.Before(e.Revoked) || e.Revoked.Before(part.began) || e.Revoked.After(part.ended) {
		return errors.New("there is no evidence of a request after the credentials were revoked")
	}
	since := func(at time.Time) string { return at.Sub(e.Revoked).Round(time.Second).String() + " after" }
	part.Checks += 2
	if e.Last.Refused {
		part.Outcomes["refused "+since(e.Last.At)]++
	} else {
		part.fail("%s is let in %s the credentials were revoked (code %d, --timeout)", who.Name, since(e.Last.At), e.Last.Code)
	}
	switch {
	case e.WatchCode != http.StatusOK:
		part.fail("the watch was answered %d", e.WatchCode)
	case e.WatchEnded == nil:
		part.Outcomes["watch still open "+since(part.ended)]++
	default:
		part.Outcomes["watch ended "+since(*e.WatchEnded)]++
	}
	seen := false
	for _, raw := range e.Events {
		ev := decode(raw)
		if ev == nil || !strings.Contains(ev.RequestURI, markerOf(e.Run, 0, 1)) {
			continue
		}
		got := arriving(ev).Username
		seen = seen || got == who.Name
		if got != who.Name && got != "" && got != user.Anonymous {
			part.fail("a request of %s was made as %q", who.Name, got)
		}
	}
	if !seen {
		part.Inconclusive = "the audit log has no event of the watch, by the request URI"
	}
	return nil
}
