package sample

import (
	"slices"
	"strconv"
	"testing"
)

func TestOneInTakesEachSubjectOnce(t *testing.T) {
	t.Setenv(allVariable, "")
	subjects := []string{"a", "b", "c", "d", "e", "f", "g"}
	var taken []string
	for turn := range 3 {
		t.Setenv(turnVariable, strconv.Itoa(1000+turn))
		taken = append(taken, OneIn(3, subjects)...)
	}
	slices.Sort(taken)
	if !slices.Equal(taken, subjects) {
		t.Errorf("three turns took %q, expected each of %q once", taken, subjects)
	}
}

func TestOneInTakesEverythingByNight(t *testing.T) {
	t.Setenv(allVariable, "all")
	subjects := []int{1, 2, 3, 4}
	if taken := OneIn(3, subjects); !slices.Equal(taken, subjects) {
		t.Errorf("took %v, expected all of %v", taken, subjects)
	}
}

func TestTurnIgnoresWhatIsNoTurn(t *testing.T) {
	for _, text := range []string{"", "main", "-1"} {
		t.Setenv(turnVariable, text)
		if turn := Turn(); turn != 0 {
			t.Errorf("%q: turn %d, expected 0", text, turn)
		}
	}
}

func TestInTurn(t *testing.T) {
	t.Setenv(allVariable, "")
	t.Setenv(turnVariable, "4")
	run := map[int]bool{}
	for index := range 3 {
		t.Run(strconv.Itoa(index), func(t *testing.T) {
			InTurn(t, index, 3)
			run[index] = true
		})
	}
	if len(run) != 1 || !run[1] {
		t.Errorf("of three tests turn 4 runs %v, want that of index 1", run)
	}
}
