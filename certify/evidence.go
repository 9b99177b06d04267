package certify

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/reports/record"
)

// These are the keys of a certification in a record. Answers are below answersKey, in the order in which they came.
const (
	answersKey       = "answers/"
	circumstancesKey = "circumstances"
)

// chunkSize is how many answers are in one piece of evidence.
const chunkSize = 8192

// recordedStep is what one step of a run asked and what it was answered, or a part of this.
type recordedStep[A any] struct {
	Step string `json:"step"`
	// Seconds is how long the step took. Only its last part has it.
	Seconds float64 `json:"seconds,omitempty"`
	Answers []A     `json:"answers"`
}

// stepRecorder appends the steps of a run to a log.
type stepRecorder[A any] struct {
	log    *record.Log
	pieces int
}

// record appends the answers of a step to the log, in pieces of chunkSize.
func (r *stepRecorder[A]) record(step string, took time.Duration, answers []A) error {
	parts := slices.Collect(slices.Chunk(answers, chunkSize))
	for i, part := range parts {
		s := recordedStep[A]{Step: step, Answers: part}
		if i == len(parts)-1 {
			s.Seconds = took.Round(time.Millisecond).Seconds()
		}
		r.pieces++
		if err := r.log.Append(fmt.Sprintf("%s%03d-%s", answersKey, r.pieces, step), s); err != nil {
			return err
		}
	}
	return nil
}

// readAnswers returns all answers of a record, in their order.
func readAnswers[A any](view record.View) (answers []A, err error) {
	for _, key := range view.Keys(answersKey) {
		s, err := record.Read[recordedStep[A]](view, key)
		if err != nil {
			return nil, err
		}
		answers = append(answers, s.Answers...)
	}
	return answers, nil
}

// evidenceFiles returns the files that have the answers of a level.
func evidenceFiles(view record.View, level string) (files []string) {
	for _, key := range view.Keys(answersKey) {
		if _, step, _ := strings.Cut(key, "-"); strings.HasPrefix(step, level) {
			files = append(files, view.EvidenceFile(key))
		}
	}
	return files
}
