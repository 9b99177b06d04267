package storm

import (
	"math/rand/v2"
	"slices"

	"github.com/authzconf/authzconf/loadgen/profile"
)

type planned struct {
	comparison profile.Comparison
	start      int // of the servers
	pair       int // numbered over all comparisons
	role       string
	side       profile.Side
	seed       uint64 // the same for both sides of a pair
}

// orderBlocks returns all blocks in their order. Pairs are spread over the starts of the servers. The sides of a pair follow each
// other, so that what drifts meets both alike; of two pairs of a comparison in a start one begins with A and one with
// B (ABBA), which of them is drawn; and comparisons take turns in an order that is drawn for each pair.
func orderBlocks(p *profile.Profile, seed int64) (blocks []planned) {
	random := rand.New(rand.NewPCG(uint64(seed), 0x5704)) // another stream than the agents'
	firstB := make([]bool, len(p.Comparisons))
	start, within := -1, 0
	for pair := range p.Pairs {
		within++
		if s := pair * p.Starts / p.Pairs; s != start {
			start, within = s, 0
		}
		turns := random.Perm(len(p.Comparisons))
		for _, i := range turns {
			c := p.Comparisons[i]
			if within%2 == 0 {
				firstB[i] = random.IntN(2) == 1
			} else {
				firstB[i] = !firstB[i]
			}
			arrivals := uint64(seed)<<20 + uint64(pair)<<6 + uint64(i)
			number := pair*len(p.Comparisons) + i
			two := []planned{{c, start, number, "A", c.A, arrivals}, {c, start, number, "B", c.B, arrivals}}
			if firstB[i] {
				slices.Reverse(two)
			}
			blocks = append(blocks, two...)
		}
	}
	return blocks
}
