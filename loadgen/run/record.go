package run

import (
	"fmt"

	"github.com/authzconf/authzconf/reports/record"
)

// These are the keys of the evidence of a storm: each block when it is over, and the circumstances at the end.
const (
	blocksPrefix = "storm/blocks/"
	runKey       = "storm/run"
)

func blockKey(number int) string { return fmt.Sprintf("%s%04d", blocksPrefix, number) }

// AppendBlock records a block.
func AppendBlock(log *record.Log, number int, b *Block) error { return log.Append(blockKey(number), b) }

// AppendRun records everything but the blocks of a run.
func AppendRun(log *record.Log, r *Run) error {
	circumstances := *r
	circumstances.Blocks = nil
	return log.Append(runKey, circumstances)
}

// Recorded reports whether a run was recorded to its end.
func Recorded(view record.View) bool { return view.Has(runKey) }

// Read returns the run that was recorded.
func Read(view record.View) (*Run, error) {
	circumstances, err := record.Read[Run](view, runKey)
	if err != nil {
		return nil, err
	}
	r := *circumstances
	for _, key := range view.Keys(blocksPrefix) {
		b, err := record.Read[Block](view, key)
		if err != nil {
			return nil, err
		}
		r.Blocks = append(r.Blocks, *b)
	}
	r.DropOwn()
	return &r, nil
}

// RunFile returns the path of the file with the circumstances.
func RunFile(view record.View) string { return view.EvidenceFile(runKey) }

// BlockFile returns the path of the file with a block.
func BlockFile(view record.View, number int) string { return view.EvidenceFile(blockKey(number)) }
