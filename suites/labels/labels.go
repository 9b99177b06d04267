// Package labels reads expressions of labels in the language of Ginkgo's --label-filter. It is separate from the
// suites, so that the command line does not import all of Ginkgo.
package labels

import (
	"fmt"

	"github.com/onsi/ginkgo/v2/types"
)

// Filter parses an expression, and returns a function that reports whether labels match it.
func Filter(text string) (func(labels []string) bool, error) {
	filter, err := types.ParseLabelFilter(text)
	if err != nil { // the error is a whole page for a terminal
		return nil, fmt.Errorf(
			"%q cannot be read (expected labels with &&, ||, !, brackets or /regular expression/, such as 'core && !slow')",
			text,
		)
	}
	return filter, nil
}
