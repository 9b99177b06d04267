package scenarios

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// numberRange finds a range of numbers in an item of a list, as in "team-{001..501}".
var numberRange = regexp.MustCompile(`^(.*)\{([0-9]{1,9})\.\.([0-9]{1,9})\}(.*)$`)

// mayHaveRange reports whether an item of a list may be a range. It is much faster than numberRange.
func mayHaveRange(item *yaml.Node) bool { return strings.Contains(item.Value, "..") }

// maxRange keeps a mistyped range from filling the memory. It is twice as many header values as API servers accept.
const maxRange = 32768

// expandRange returns the texts that an item of a list stands for. It is the item itself, unless that has a range of
// numbers. The numbers are written with as many digits as the first of them. If a range is empty or too long, problem
// says so.
func expandRange(item string) (texts []string, problem string) {
	m := numberRange.FindStringSubmatch(item)
	if m == nil {
		return []string{item}, ""
	}
	first, _ := strconv.Atoi(m[2]) // both have only digits, and at most nine
	last, _ := strconv.Atoi(m[3])
	if n := last - first + 1; n < 1 || n > maxRange {
		return nil, fmt.Sprintf("has a range of %d values (expected 1 to %d)", max(0, n), maxRange)
	}
	texts = make([]string, 0, last-first+1)
	before, digits, after := m[1], len(m[2]), m[4]
	for i := first; i <= last; i++ {
		number := strconv.Itoa(i)
		zeros := strings.Repeat("0", max(0, digits-len(number)))
		texts = append(texts, before+zeros+number+after)
	}
	return texts, ""
}

// expandRanges replaces ranges by their texts in a list of texts that was decoded from n. Nearly all lists have none.
func (s *source) expandRanges(n *yaml.Node, list reflect.Value, label string) {
	if !slices.ContainsFunc(n.Content, mayHaveRange) {
		return
	}
	all := make([]string, 0, list.Len())
	for i := range list.Len() {
		texts, problem := expandRange(list.Index(i).String())
		if problem != "" {
			s.breakAt(n.Content[i], "%s %s", label, problem)
		}
		all = append(all, texts...)
	}
	list.Set(reflect.ValueOf(all))
}
