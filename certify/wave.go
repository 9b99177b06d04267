package certify

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// gatherTimeout is how long a wave waits until its requests are under way. stallTimeout is how long it waits after
	// the last one that got so far, because a server may accept fewer at once. On a busy machine it waits longer
	// (lagMeter.patience): there a TLS handshake takes most of a second, and a wave that does not wait for it has too few
	// reviews in flight to show anything.
	gatherTimeout = 10 * time.Second
	stallTimeout  = 2 * time.Second
	// flushTimeout is how long the last bytes may take to be written, on a busy machine longer.
	flushTimeout = time.Second
	// glanceInterval is how often a wave looks at its progress.
	glanceInterval = time.Millisecond
)

// wave is a number of requests that are to be answered at the same time. The body of each lacks its last byte until all
// requests are under way; then the last bytes are sent together.
type wave struct {
	// lag measures what the harness itself needs; nil if that is not measured.
	lag      *lagMeter
	released chan struct{}
	// releasedAt is when the wave opened. It is set before released is closed.
	releasedAt time.Time
	// readyCount counts requests that lack only their last byte, or are over. heldCount counts those that lack it, and
	// writtenCount those that have been written.
	readyCount, heldCount, writtenCount atomic.Int64
	// inFlight counts the requests that have been sent and have no answer.
	inFlight atomic.Int64
}

func newWave(lag *lagMeter) *wave { return &wave{lag: lag, released: make(chan struct{})} }

// heldRequest is one request of a wave.
type heldRequest struct {
	wave  *wave
	ready sync.Once
	state atomic.Int32
}

// These are the states of a request.
const (
	isWaiting int32 = iota
	isSent
	isAnswered
)

// newRequest returns a new request of the wave.
func (w *wave) newRequest() *heldRequest { return &heldRequest{wave: w} }

// newBody returns a body that lacks its last byte until the wave opens.
func (h *heldRequest) newBody(ctx context.Context, whole []byte) io.ReadCloser {
	return &heldBody{request: h, ctx: ctx, rest: whole}
}

// markReady counts the request as one that the wave no longer waits for.
func (h *heldRequest) markReady() { h.ready.Do(func() { h.wave.readyCount.Add(1) }) }

// countAnswer counts the request as answered. It returns how many requests were in flight then, and since when. It
// returns false if the request was not sent with the others.
func (h *heldRequest) countAnswer() (inFlight int64, since time.Time, wasSent bool) {
	h.markReady()
	if h.state.Swap(isAnswered) == isSent {
		return h.wave.inFlight.Add(-1) + 1, h.wave.releasedAt, true
	}
	return 0, time.Time{}, false
}

// heldBody is the body of a request of a wave.
type heldBody struct {
	request *heldRequest
	ctx     context.Context
	rest    []byte
}

// Read returns all but the last byte at once, and the last byte when the wave opens.
func (b *heldBody) Read(p []byte) (n int, err error) {
	if len(b.rest) > 1 {
		n = copy(p, b.rest[:len(b.rest)-1])
		b.rest = b.rest[n:]
		return n, nil
	}
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	if err := b.request.wait(b.ctx); err != nil {
		return 0, err
	}
	n = copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close does nothing, because the body is in memory.
func (b *heldBody) Close() error { return nil }

// wait waits for the wave to open, and counts the request as sent.
func (h *heldRequest) wait(ctx context.Context) error {
	h.wave.heldCount.Add(1)
	h.markReady()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-h.wave.released:
	}
	if h.state.CompareAndSwap(isWaiting, isSent) {
		h.wave.inFlight.Add(1)
	}
	return nil
}

// trace returns a context that counts the request when it has been written.
func (h *heldRequest) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(
		ctx,
		&httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { h.wave.writtenCount.Add(1) }},
	)
}

// attach gives a request the body that is held back.
func (h *heldRequest) attach(req *http.Request, whole []byte) *http.Request {
	ctx := h.trace(req.Context())
	req = req.WithContext(ctx)
	req.ContentLength, req.Body = int64(len(whole)), h.newBody(ctx, whole)
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil } // to send it again, by itself
	return req
}

// gather waits until n requests are ready, or until no more become ready.
func (w *wave) gather(ctx context.Context, n int) {
	began, last, changed := time.Now(), int64(0), time.Now()
	for ctx.Err() == nil {
		ready := w.readyCount.Load()
		if ready != last {
			last, changed = ready, time.Now()
		}
		isOver := w.isOverdue(changed, stallTimeout) || w.isOverdue(began, gatherTimeout)
		if ready >= int64(n) || isOver {
			return
		}
		time.Sleep(glanceInterval)
	}
}

// isOverdue reports whether more time has gone by than something may take on this machine.
func (w *wave) isOverdue(since time.Time, limit time.Duration) bool {
	gone := time.Since(since)
	return gone > limit && gone > w.lag.patience(limit)
}

// release sends the last bytes of all requests that are held back, together on all connections.
func (w *wave) release(ctx context.Context, conns *heldConns) {
	conns.holdWrites()
	defer conns.releaseWrites()
	writtenBefore, heldBefore := w.writtenCount.Load(), w.heldCount.Load()
	w.releasedAt = time.Now()
	close(w.released)
	if conns.isEmpty() {
		return
	}
	for began := time.Now(); ctx.Err() == nil && !w.isOverdue(began, flushTimeout); time.Sleep(glanceInterval) {
		if w.writtenCount.Load()-writtenBefore >= heldBefore {
			return
		}
	}
}
