package server

import (
	"context"
	"errors"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/verdicts"
)

// Batch is a time in which many requests follow each other, one at a time, and the target is read once for all of
// them: reading its metrics takes longer than most requests.
type Batch struct {
	t    *Server
	mark uint64
}

// BatchObservations is what a target saw during a batch.
type BatchObservations struct {
	// Reviews are in order of arrival, Seqs their places among all: those of a request are between the Marks around it.
	Reviews []verdicts.Review
	Seqs    []uint64
	Metrics []verdicts.MetricSample // the increases over the whole batch; nil where the target has none
}

// OpenBatch keeps every other request of scenarios away until Close.
func (s *Server) OpenBatch() (*Batch, error) {
	s.mu.Lock()
	if err := s.Err(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	return &Batch{t: s, mark: s.recorder.Mark()}, nil
}

// Mark is the place of the last review that arrived.
func (b *Batch) Mark() uint64 { return b.t.recorder.Mark() }

// Close ends the batch. What was recorded is forgotten by the recorder.
func (b *Batch) Close(ctx context.Context) (*BatchObservations, error) {
	t := b.t
	defer t.mu.Unlock()
	metrics, err := t.increases(ctx)
	if err != nil {
		return nil, errors.Join(err, t.Err())
	}
	records := t.recorder.Since(b.mark)
	t.recorder.Reset()
	seqs := seq.Map(records, func(r recorder.Record) uint64 { return r.Seq })
	return &BatchObservations{Reviews: t.toReviews(records), Seqs: seqs, Metrics: metrics}, t.Err()
}
