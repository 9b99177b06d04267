package target

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/verdicts"
)

// Batch is a time in which many requests follow each other, one at a time, and the target is read once for all of
// them: reading its metrics takes longer than most requests.
type Batch struct {
	t    *Target
	mark uint64
}

// Batched is what a target saw during a batch.
type Batched struct {
	// Reviews are in order of arrival, Seqs their places among all arrivals: those
	// of a request are after the Mark before it, up to the Mark after it.
	Reviews []verdicts.Review
	Seqs    []uint64
	// Metrics are the increases over the whole batch; nil where the target has none.
	Metrics []verdicts.MetricSample
}

// OpenBatch keeps every other request of scenarios away until Close.
func (t *Target) OpenBatch() (*Batch, error) {
	t.mu.Lock()
	if err := t.Err(); err != nil {
		t.mu.Unlock()
		return nil, err
	}
	return &Batch{t: t, mark: t.recorder.Mark()}, nil
}

// Mark is the place of the last review that arrived.
func (b *Batch) Mark() uint64 { return b.t.recorder.Mark() }

// Close ends the batch. What was recorded is forgotten by the recorder.
func (b *Batch) Close(ctx context.Context) (*Batched, error) {
	t := b.t
	defer t.mu.Unlock()
	metrics, err := t.increases(ctx)
	if err != nil {
		return nil, errors.Join(err, t.Err())
	}
	out := &Batched{Metrics: metrics}
	records := t.recorder.Since(b.mark)
	t.recorder.Reset()
	out.Reviews = t.reviews(records)
	for _, r := range records {
		out.Seqs = append(out.Seqs, r.Seq)
	}
	return out, t.Err()
}

// Audit waits for the audit event of a request that was answered.
func (t *Target) Audit(ctx context.Context, auditID string) (json.RawMessage, error) {
	if auditID == "" {
		return nil, errors.New("the answer has no Audit-Id header")
	}
	return t.events.Await(ctx, auditID)
}

// FrontProxy is the transport with which requestors of any name are sent, by headers that come on top of it. It
// speaks HTTP/1.1, which is quicker as long as requests come one at a time.
func (t *Target) FrontProxy() (http.RoundTripper, error) {
	c := t.cluster.FrontProxy()
	c.NextProtos = []string{"http/1.1"}
	return rest.TransportFor(c)
}
