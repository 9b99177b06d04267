package reports

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// KnownFailingKind is the kind of a known-failing file, of FileVersion.
const KnownFailingKind = "KnownFailingList"

type knownFailingList struct {
	APIVersion string         `yaml:"apiVersion"`
	Kind       string         `yaml:"kind"`
	Entries    []KnownFailing `yaml:"entries"`
}

// LoadKnownFailing reads a known-failing file strictly. An unknown field, a missing reason, a bad pattern or a
// duplicate entry is an error with file, line and column. name is used in messages.
func LoadKnownFailing(name string, data []byte) ([]KnownFailing, error) {
	var list knownFailingList
	file, err := scenarios.DecodeKind(name, data, "a known-failing list", FileVersion, KnownFailingKind, &list)
	if err != nil {
		return nil, err
	}
	return list.Entries, list.check(file.At)
}

// check checks the entries, and reports everything that is wrong.
func (l knownFailingList) check(at func(path string) string) error {
	var errs []error
	first := map[[2]string]int{}
	for i, e := range l.Entries {
		entryPath := fmt.Sprintf("$.entries[%d]", i)
		bad := func(field, format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s: %s", at(entryPath+field), fmt.Sprintf(format, args...)))
		}
		if strings.TrimSpace(e.Scenario) == "" {
			bad("", "entry %d names no scenario", i+1)
		}
		if strings.TrimSpace(e.Reason) == "" {
			bad("", "entry %d states no reason: say a difference that is expected, from its field on", i+1)
		}
		for _, p := range [][2]string{{".scenario", e.Scenario}, {".cell", e.Cell}} {
			if _, err := path.Match(p[1], ""); err != nil {
				bad(p[0], "bad pattern %q", p[1])
			}
		}
		e.checkDates(bad)
		key := [2]string{e.Scenario, e.Cell}
		if n, ok := first[key]; ok {
			bad("", "entry %d is the same as entry %d", i+1, n+1)
			continue
		}
		first[key] = i
	}
	return errors.Join(errs...)
}

// checkDates reports dates that are not valid, and an entry that ends before it begins.
func (k KnownFailing) checkDates(bad func(field, format string, args ...any)) {
	for _, d := range [][2]string{{".since", k.Since}, {".until", k.Until}} {
		if _, err := time.Parse(time.DateOnly, d[1]); d[1] != "" && err != nil {
			bad(d[0], "%q is not a day; write it like 2006-01-02", d[1])
		}
	}
	if k.Until != "" && k.Until < k.Since {
		bad(".until", "the entry ends on %s, before it begins on %s", k.Until, k.Since)
	}
}
