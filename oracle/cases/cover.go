package cases

import "math/rand/v2"

// pair is two levels of two factors, the first factor before the second.
type pair struct{ factor, level, factor2, level2 int }

// newPair returns the pair of two levels of two factors, which may come in either order.
func newPair(f, level, f2, level2 int) pair {
	if f2 < f {
		return pair{f2, level2, f, level}
	}
	return pair{f, level, f2, level2}
}

// cover chooses levels so that every pair comes up in few choices.
type cover struct {
	all  int
	open map[pair]bool
	list []pair // in a random order; those that are covered are skipped
}

func newCover(rng *rand.Rand) *cover {
	c := &cover{open: map[pair]bool{}}
	for f := range factors {
		for f2 := f + 1; f2 < factorCount; f2++ {
			c.addPairs(f, f2)
		}
	}
	c.all = len(c.list)
	rng.Shuffle(c.all, func(i, j int) { c.list[i], c.list[j] = c.list[j], c.list[i] })
	return c
}

// addPairs adds all pairs of the levels of two factors.
func (c *cover) addPairs(f, f2 int) {
	for l := range factors[f].Levels {
		for l2 := range factors[f2].Levels {
			p := pair{f, l, f2, l2}
			c.open[p] = true
			c.list = append(c.list, p)
		}
	}
}

// next starts from a pair that did not come up yet, and gives each other factor, in a random order, the level that
// brings the most new pairs. It returns false when all pairs came up.
func (c *cover) next(rng *rand.Rand) (choice Choice, ok bool) {
	for len(c.list) > 0 && !c.open[c.list[0]] {
		c.list = c.list[1:]
	}
	if len(c.list) == 0 {
		return choice, false
	}
	first := c.list[0]
	choice[first.factor], choice[first.factor2] = first.level, first.level2
	levels := []int{first.factor, first.factor2}
	for _, f := range rng.Perm(factorCount) {
		if f == first.factor || f == first.factor2 {
			continue
		}
		choice[f] = c.bestLevel(rng, f, choice, levels)
		levels = append(levels, f)
	}
	c.close(choice)
	return choice, true
}

// bestLevel returns the level of a factor that brings the most new pairs with the factors that were chosen before.
func (c *cover) bestLevel(rng *rand.Rand, f int, choice Choice, levels []int) int {
	best, most := 0, -1
	for _, l := range rng.Perm(len(factors[f].Levels)) {
		fresh := 0
		for _, other := range levels {
			if c.open[newPair(f, l, other, choice[other])] {
				fresh++
			}
		}
		if fresh > most {
			best, most = l, fresh
		}
	}
	return best
}

// close notes that all pairs of a choice came up.
func (c *cover) close(choice Choice) {
	for f := range factors {
		for f2 := f + 1; f2 < factorCount; f2++ {
			delete(c.open, pair{f, choice[f], f2, choice[f2]})
		}
	}
}
