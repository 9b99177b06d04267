package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

// contradiction is what the catalogue has against a sentence: scenarios of level divergence, and the fewest and
// most reviews that a request of theirs costs, that of the request itself included.
type contradiction struct {
	scenarios    []string
	fewest, most int
}

// catalogue is loaded once.
var catalogue = sync.OnceValues(func() (*scenarios.Set, error) { return scenarios.Load(scenarios.FS, fixtures.FS) })

// findContradiction returns what scenarios say against a sentence of a document: those that quote it, and others by their IDs.
func findContradiction(quote string, others ...string) (c contradiction, err error) {
	set, err := catalogue()
	if err != nil {
		return c, err
	}
	quote = strings.TrimSuffix(joinLines(quote), ".")
	for _, s := range set.All() {
		quoted := strings.Contains(joinLines(s.Documented), quote) || slices.Contains(others, s.ID)
		if s.Level != scenarios.Divergence || !quoted {
			continue
		}
		c.scenarios = append(c.scenarios, s.ID)
		for _, step := range s.Steps {
			c.count(step)
		}
	}
	return c, nil
}

// count notes how many reviews a step expects, if it says so.
func (c *contradiction) count(step scenarios.Step) {
	if step.Expect == nil || step.Expect.Reviews == nil {
		return
	}
	n := len(step.Expect.Reviews)
	if c.most == 0 || n < c.fewest {
		c.fewest = n
	}
	c.most = max(c.most, n)
}

// String returns the contradiction for people.
func (c contradiction) String() string {
	return fmt.Sprintf(
		"%d to %d in %s of level divergence, such as %s",
		c.fewest,
		c.most,
		reports.Plural(len(c.scenarios), "scenario"),
		c.scenarios[0],
	)
}

func joinLines(text string) string { return strings.Join(strings.Fields(text), " ") }
