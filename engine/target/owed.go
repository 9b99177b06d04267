package target

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"

	"github.com/authzconf/authzconf/scenarios"
)

// errNoEvent is wrapped by the error about an audit event that did not come.
var errNoEvent = errors.New("no audit event came")

// connectionEnded says that a request got no answer because the server ended the connection or the stream, as it
// does when a handler panics.
func connectionEnded(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		strings.Contains(err.Error(), "stream error: ")
}

// answers says whether the API server, at this moment, answers a request and writes the audit event of it. What it
// owes after that it has not just been too slow, or too dead, to do.
func (t *Target) answers(ctx context.Context) bool {
	client, err := t.UserClient(scenarios.Requestor{User: witnessUser}, nil, func(*http.Request) {})
	if err != nil {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.host+"/version", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	_ = resp.Body.Close()
	_, err = t.events.Await(ctx, resp.Header.Get("Audit-Id"))
	return err == nil && t.Err() == nil
}
