package storm

import (
	"testing"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// TestWilliamsSquare checks that in the rows of a square everything is equally often in each place, and equally often
// directly after each other thing.
func TestWilliamsSquare(t *testing.T) {
	for n := 2; n <= 9; n++ {
		rows := williamsSquare(n)
		places, after := map[[2]int]int{}, map[[2]int]int{}
		for _, row := range rows {
			for place, thing := range row {
				places[[2]int{thing, place}]++
				if place > 0 {
					after[[2]int{row[place-1], thing}]++
				}
			}
		}
		wantPlaces, wantAfter := len(rows)/n, len(rows)/n
		for a := range n {
			for b := range n {
				if got := places[[2]int{a, b}]; got != wantPlaces {
					t.Errorf("of %d, %d is %d times in place %d, want %d", n, a, got, b, wantPlaces)
				}
				if got := after[[2]int{a, b}]; a != b && got != wantAfter {
					t.Errorf("of %d, %d comes %d times after %d, want %d", n, b, got, a, wantAfter)
				}
			}
		}
	}
}

func TestRounds(t *testing.T) {
	p := burst(
		profile.Comparison{Name: "aa", A: side("denied", profile.GateOffServer), B: side("denied", profile.GateOffServer+"-2")},
		profile.Comparison{Name: "gate", A: side("denied", profile.GateOffServer), B: side("denied", profile.GateOnServer)},
	)
	p.Rounds, p.Pairs, p.Starts = true, 6, 3
	blocks := orderBlocks(p, 3)
	if len(blocks) != 3*6 || p.Blocks() != len(blocks) {
		t.Fatalf("%d blocks, the profile says %d", len(blocks), p.Blocks())
	}
	for i, b := range blocks {
		if b.number != i/3 || b.start != i/6 {
			t.Errorf("block %d is of round %d in start %d", i, b.number, b.start)
		}
		if b.seed != blocks[i/3*3].seed {
			t.Errorf("block %d has other arrivals than its round", i)
		}
		var gate run.Use
		for _, use := range b.uses {
			if use.Comparison == "gate" {
				gate = use
			}
		}
		want := map[profile.Server]string{profile.GateOffServer: "A", profile.GateOffServer + "-2": "A", profile.GateOnServer: "B"}[b.side.Server]
		if gate.Role != want {
			t.Errorf("the block on %s is %q in the comparison gate, want %q", b.side.Server, gate.Role, want)
		}
	}
}
