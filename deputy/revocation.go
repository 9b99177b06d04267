package deputy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/internal/usage"
)

// revocationEvidence is what was seen while the credentials of the first person, who has a watch open, became
// worthless.
type revocationEvidence struct {
	Run       string    `json:"run"`
	WatchCode int       `json:"watchCode"`
	Revoked   time.Time `json:"revoked"` // when the command had revoked them
	// Last is the person's last request: the first watch that was refused after a list had been, or the one that was
	// accepted when time was up.
	Last lastRequest `json:"last"`
	// WatchEnded is when the watch ended. It is nil if the watch was open to the end.
	WatchEnded *time.Time `json:"watchEnded,omitempty"`
	// Ended is when the watch was no longer observed.
	Ended time.Time `json:"ended"`
	// Events are the events of all these requests.
	Events []json.RawMessage `json:"events,omitempty"`
}

type lastRequest struct {
	At      time.Time `json:"at"`
	Code    int       `json:"code"`
	Watch   bool      `json:"watch,omitempty"`
	Refused bool      `json:"refused,omitempty"`
}

// revocation is what is tried at a cluster while credentials are revoked.
type revocation struct {
	ep       *endpoint
	who      *Identity
	evidence *revocationEvidence
	// watch is open until it ends, and watchEnded then gets the time.
	watch      io.Closer
	watchEnded chan time.Time
}

// observeRevocation opens a watch at each cluster, takes the person's credentials away, and tries until the proxy
// refuses them. What was seen is added to the evidence of the part.
func (ep *endpoint) observeRevocation(ctx context.Context, command string, e *partEvidence) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all []*revocation
	defer func() {
		for _, r := range all {
			_ = r.watch.Close()
		}
	}()
	for _, end := range ep.clusterEndpoints() {
		r, err := end.openWatch(ctx)
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	out, err := exec.CommandContext(ctx, "/bin/sh", "-c", command).CombinedOutput()
	if err != nil {
		return &usage.Error{Problem: fmt.Sprintf("--revoke-command: %v: %.300q", err, out)}
	}
	revoked := truncatedNow()
	tries, triesCtx := errgroup.WithContext(ctx)
	for _, r := range all {
		r.evidence.Revoked = revoked
		tries.Go(func() error { return r.observeRefusal(triesCtx) })
	}
	if err := tries.Wait(); err != nil {
		return err
	}
	e.Revocation = all[0].evidence
	if len(all) > 1 {
		e.OtherRevocation = all[1].evidence
	}
	return nil
}

// openWatch opens a watch of the first person, and notes when it ends.
func (ep *endpoint) openWatch(ctx context.Context) (*revocation, error) {
	r := &revocation{ep: ep, who: ep.people[0], evidence: &revocationEvidence{Run: newRun()}, watchEnded: make(chan time.Time, 1)}
	watch, err := r.request(ctx, "&watch=true&timeoutSeconds=600") //nolint:bodyclose // it is open until observeRevocation closes r.watch
	if err != nil {
		return nil, fmt.Errorf("the watch: %w", err)
	}
	r.watch, r.evidence.WatchCode = watch.Body, watch.StatusCode
	go func() {
		_, _ = io.Copy(io.Discard, watch.Body)
		r.watchEnded <- time.Now()
	}()
	return r, nil
}

// observeRefusal tries until the person is refused, waits for the end of the watch, and reads who arrived.
func (r *revocation) observeRefusal(ctx context.Context) (err error) {
	if r.evidence.Last, err = r.tryUntilRefused(ctx); err != nil {
		return err
	}
	select {
	case at := <-r.watchEnded:
		r.evidence.WatchEnded = &at
	case <-time.After(time.Until(r.evidence.Revoked.Add(r.ep.timeout))):
	case <-ctx.Done():
		return ctx.Err()
	}
	r.evidence.Events, err = r.ep.log.eventsOf(ctx, r.evidence.Run, "")
	r.evidence.Ended = time.Now()
	return err
}

// request sends a request of the person that contains a marker.
func (r *revocation) request(ctx context.Context, query string) (*http.Response, error) {
	return r.ep.get(ctx, podsIn(r.ep.namespace)+"?fieldSelector=metadata.name%3D"+markerOf(r.evidence.Run, 0, 1)+query, r.who)
}

// tryUntilRefused sends requests until a list and the watch after it are refused, or until time is up.
func (r *revocation) tryUntilRefused(ctx context.Context) (last lastRequest, err error) {
	for deadline := time.Now().Add(r.ep.timeout); !last.Refused && time.Now().Before(deadline); {
		if last = r.try(ctx, false); last.Refused {
			last = r.try(ctx, true)
		}
		if !clusters.Pause(ctx, 250*time.Millisecond) {
			return last, ctx.Err()
		}
	}
	if last.At.IsZero() {
		return last, errors.New("no request was sent after the credentials were revoked")
	}
	return last, nil
}

// try sends a list or a watch.
func (r *revocation) try(ctx context.Context, watch bool) lastRequest {
	last, query := lastRequest{At: truncatedNow(), Watch: watch, Refused: true}, ""
	if watch {
		query = "&watch=true&timeoutSeconds=1"
	}
	if resp, err := r.request(ctx, query); err == nil {
		last.Code, last.Refused = resp.StatusCode, !isLetIn(resp, watch)
	}
	return last
}

// isLetIn reports whether an answer is one that an API server gives to somebody who may ask. A login page may be a 200,
// too. A watch that stays open may have sent nothing.
func isLetIn(resp *http.Response, watch bool) bool {
	var got struct{ Kind, Type string }
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	err := errors.Join(json.NewDecoder(resp.Body).Decode(&got), resp.Body.Close())
	isOpenWatch := watch && errors.Is(err, io.EOF) && kind == "application/json"
	isAnswer := got.Kind+got.Type != "" || isOpenWatch
	return resp.StatusCode/100 == 2 && isAnswer
}
