package run

import "github.com/authzconf/authzconf/reports/load/histogram"

// Merge adds what another shard has done in the same block: exactly what one process would have counted. What is
// not a shard's (the place in the run, reviews, the server's costs) is left alone.
func (b *Block) Merge(other *Block) {
	b.Planned += other.Planned
	b.Sent += other.Sent
	b.Late += other.Late
	b.Dropped += other.Dropped
	b.Retried += other.Retried
	b.Reconnects += other.Reconnects
	b.Answers = Sum(b.Answers, other.Answers)
	b.Wrong = Sum(b.Wrong, other.Wrong)
	b.Again = Sum(b.Again, other.Again)
	b.FollowsServer = b.FollowsServer || other.FollowsServer
	b.Log = append(b.Log, other.Log...)
	for _, text := range other.Odd {
		b.NoteOdd(text)
	}
	b.Latency.Merge(&other.Latency)
	b.Service.Merge(&other.Service)
	b.Lag.Merge(&other.Lag)
	for kind, h := range other.Kinds {
		if b.Kinds == nil {
			b.Kinds = map[string]histogram.Histogram{}
		}
		mine := b.Kinds[kind]
		mine.Merge(&h)
		b.Kinds[kind] = mine
	}
	for i, s := range other.Timeline {
		if i == len(b.Timeline) {
			b.Timeline = append(b.Timeline, Second{})
		}
		t := &b.Timeline[i]
		t.Sent += s.Sent
		t.Done += s.Done
		t.Errors += s.Errors
		t.Reviews += s.Reviews
	}
	b.GeneratorCPU += other.GeneratorCPU
	b.GeneratorRSS += other.GeneratorRSS
}

// NoteOdd keeps the first three texts of errors that have no class of their own.
func (b *Block) NoteOdd(text string) {
	if len(b.Odd) < 3 {
		b.Odd = append(b.Odd, text)
	}
}

// Sum adds b to a, which is made if there is something to add.
func Sum[N int64 | float64](a, b map[string]N) map[string]N {
	for k, n := range b {
		if a == nil {
			a = map[string]N{}
		}
		a[k] += n
	}
	return a
}
