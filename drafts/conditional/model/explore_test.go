package model

import "testing"

// TestSeed checks that the same seed gives the same cases.
func TestSeed(t *testing.T) {
	texts := map[int64]string{}
	for range 2 {
		for seed := range int64(3) {
			text := ""
			for _, p := range newGenerator(seed, 7).policies() {
				text += p.expression.String()
			}
			if before, ok := texts[seed]; ok && before != text {
				t.Errorf("seed %d: %s and %s", seed, before, text)
			}
			texts[seed] = text
		}
	}
	if texts[0] == texts[1] {
		t.Error("two seeds, the same cases")
	}
}
