package explore

import (
	"fmt"
	"strings"
)

// triedBy are what only special batches try, in words, in the order in which a control plane gets them.
var triedBy = []struct{ special, what string }{
	{expired, "what has expired"},
	{restarted, "a server that was restarted"},
	{reloaded, "a chain that was reloaded"},
	{flippedSuffix, "a gate that is switched"},
	{edgedSuffix, "the edges of what is remembered"},
	{crowded, "cases side by side"},
	{balancedSuffix, "two servers behind a balancer"},
	{besideSuffix, "two servers side by side"},
}

// describeUntried says what none of the cell's batches tries, for there are too few cases, or the user left them out; empty if
// everything is tried.
func (c *cell) describeUntried() string {
	triedSpecials, most := map[string]bool{}, 0
	for _, s := range c.sequences {
		for _, ref := range s.batches() {
			if c.plan.runs(ref) {
				triedSpecials[ref.special] = true
			}
		}
		most = max(most, s.total)
	}
	var missing []string
	for _, t := range triedBy {
		if !triedSpecials[t.special] {
			missing = append(missing, t.what)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf(
		"%s: not tried: %s; all batches of --cases %d try everything",
		c.options.Cell.Name,
		strings.Join(missing, ", "),
		casesForAll(most),
	)
}

// casesForAll returns how many cases bring everything that is special, in as many sequences as they make.
func casesForAll(sequences int) int {
	triedSpecials := map[string]bool{}
	for n := 0; ; n++ {
		for _, special := range specialsOf(n) {
			triedSpecials[special] = true
		}
		isComplete := true
		for _, t := range triedBy {
			isComplete = isComplete && triedSpecials[t.special]
		}
		if isComplete {
			return max(sequences, maxSequences) * (n + 1) * batchSize
		}
	}
}
