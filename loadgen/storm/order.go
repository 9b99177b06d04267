package storm

import (
	"math/rand/v2"
	"slices"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// plannedBlock is a block that is to be run.
type plannedBlock struct {
	start  int // of the servers
	number int // of the pair over all comparisons, or of the round
	uses   []run.Use
	side   profile.Side
	seed   uint64 // of the arrivals, which is the same for all blocks that are compared
}

// drawOrder is the stream of random numbers for the order of blocks. It differs from that of the agents.
const drawOrder = 0x5704

// orderBlocks returns all blocks in their order.
func orderBlocks(p *profile.Profile, seed int64) []plannedBlock {
	random := rand.New(rand.NewPCG(uint64(seed), drawOrder))
	if p.Rounds {
		return orderRounds(p, seed, random)
	}
	return orderPairs(p, seed, random)
}

// orderPairs spreads pairs over the starts of the servers. The sides of a pair follow each other, so that drift affects
// both equally. Of two pairs of a comparison in a start, one begins with A and one with B (ABBA), in random order.
// Comparisons take turns in an order that is drawn for each pair.
func orderPairs(p *profile.Profile, seed int64, random *rand.Rand) (blocks []plannedBlock) {
	firstB := make([]bool, len(p.Comparisons))
	start, position := -1, 0
	for pair := range p.Pairs {
		position++
		if s := pair * p.Starts / p.Pairs; s != start {
			start, position = s, 0
		}
		turns := random.Perm(len(p.Comparisons))
		for _, i := range turns {
			c := p.Comparisons[i]
			if position%2 == 0 {
				firstB[i] = random.IntN(2) == 1
			} else {
				firstB[i] = !firstB[i]
			}
			number := pair*len(p.Comparisons) + i
			block := func(role string, side profile.Side) plannedBlock {
				return plannedBlock{
					start,
					number,
					[]run.Use{{Comparison: c.Name, Role: role, AA: c.AA()}},
					side,
					drawArrivals(seed, pair, i),
				}
			}
			two := []plannedBlock{block("A", c.A), block("B", c.B)}
			if firstB[i] {
				slices.Reverse(two)
			}
			blocks = append(blocks, two...)
		}
	}
	return blocks
}

// orderRounds makes every side ask once in each round. The orders are the rows of a Williams square, whose first row
// and names are drawn. Over all rows every side is equally often in each place, and equally often directly after each
// other side, so that what a side leaves behind for the next affects all equally.
func orderRounds(p *profile.Profile, seed int64, random *rand.Rand) (blocks []plannedBlock) {
	sides := p.Sides()
	random.Shuffle(len(sides), func(i, j int) { sides[i], sides[j] = sides[j], sides[i] })
	rows := williamsSquare(len(sides))
	first := random.IntN(len(rows))
	for round := range p.Pairs {
		for _, i := range rows[(first+round)%len(rows)] {
			blocks = append(blocks,
				plannedBlock{round * p.Starts / p.Pairs, round, p.UsesOf(sides[i]), sides[i], drawArrivals(seed, round, 0)},
			)
		}
	}
	return blocks
}

// drawArrivals returns the seed of the arrivals of a pair of a comparison, or of a round.
func drawArrivals(seed int64, number, comparison int) uint64 {
	return uint64(seed)<<20 + uint64(number)<<6 + uint64(comparison)
}

// williamsSquare returns orders of n things in which each is equally often in every place, and equally often directly
// after each other thing (E. J. Williams, 1949). There are n orders if n is even, and 2n if it is odd.
func williamsSquare(n int) (rows [][]int) {
	for shift := range n {
		row := make([]int, n)
		for place := range row {
			step := (place + 1) / 2
			if place%2 == 0 {
				step = n - step
			}
			row[place] = (step + shift) % n
		}
		rows = append(rows, row)
	}
	if n%2 == 0 {
		return rows
	}
	return append(rows, seq.Map(rows, func(row []int) []int {
		reversed := slices.Clone(row)
		slices.Reverse(reversed)
		return reversed
	})...)
}
