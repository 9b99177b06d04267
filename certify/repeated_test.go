package certify

import (
	"slices"
	"testing"
)

// TestRepeatedAnswersKeepTheirPlaces checks that every answer to a question that is asked first or again has to be there, at its place. An
// answer that is missing, or has another's place, may have been wrong.
func TestRepeatedAnswersKeepTheirPlaces(t *testing.T) {
	b := plan(t, smallSeed)
	var whole []Answer
	for _, v := range b.All() {
		whole = append(whole, answered(v))
	}
	for check, all := range b.repeatedQuestions() {
		for _, v := range all {
			a := answered(v)
			if a.Check = check; isConcurrent(check) {
				a.InFlight = 100
			}
			whole = append(whole, a)
		}
	}
	isGranted := func(answers []Answer, level CertificationLevel) bool {
		c, err := b.Judge(answers)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(c.Results, func(r LevelResult) bool { return r.Level == level })
		return c.Results[i].Granted
	}
	if !isGranted(whole, Robust) || !isGranted(whole, Core) {
		t.Fatal("a whole run is not granted the levels")
	}
	for check, all := range b.repeatedQuestions() {
		begin := slices.IndexFunc(whole, func(a Answer) bool { return a.Check == check })
		for _, i := range []int{begin, begin + len(all)/2, begin + len(all) - 1} {
			left := slices.Delete(slices.Clone(whole), i, i+1)
			level := Robust
			if check == firstCheck {
				level = Core
			}
			if isGranted(left, level) {
				t.Errorf("%s: answer %d is left out, and the level is granted", check, i-begin)
			}
			other := slices.IndexFunc(whole, func(a Answer) bool { return a.Check == check && a.Vector != whole[i].Vector })
			swapped := slices.Clone(whole)
			if swapped[i] = whole[other]; isGranted(swapped, level) {
				t.Errorf("%s: answer %d is another's, and the level is granted", check, i-begin)
			}
		}
	}
}
