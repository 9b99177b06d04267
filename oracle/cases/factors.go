package cases

import (
	"cmp"
	_ "embed" // the factors and their levels
	"slices"
	"strings"

	"github.com/authzconf/authzconf/fixtures"
)

// Factor is one thing in which cases differ.
type Factor struct {
	Name   string   `json:"name"`
	Levels []string `json:"levels"`
}

// The factors, by their place in a Choice.
const (
	wanted = iota
	requestor
	uid
	groups
	extra
	mode
	action
	identity
	legacy
	request
	selector
	rights
	sequence
	change
	audit
	factorCount
)

//go:embed factors.yaml
var factorsYAML []byte

var factors = fixtures.Table[[factorCount]Factor]("factors.yaml", factorsYAML)

// Choice has a level for each factor, by index.
type Choice [factorCount]int

func (c Choice) level(f int) string { return factors[f].Levels[c[f]] }

func (c Choice) is(f int, levels ...string) bool { return slices.Contains(levels, c.level(f)) }

// String returns the factors that are not at their first level, with their levels.
func (c Choice) String() string {
	var parts []string
	for f := range factors {
		if c[f] != 0 {
			parts = append(parts, factors[f].Name+"="+c.level(f))
		}
	}
	return cmp.Or(strings.Join(parts, " "), "everything at its first level")
}

// parse returns the choice of a text that Choice.String made.
func parse(text string) (choice Choice) {
	for word := range strings.FieldsSeq(text) {
		name, level, _ := strings.Cut(word, "=")
		if f := slices.IndexFunc(factors[:], func(f Factor) bool { return f.Name == name }); f >= 0 {
			choice[f] = max(0, slices.Index(factors[f].Levels, level))
		}
	}
	return choice
}
