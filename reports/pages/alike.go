package pages

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// failure is something that did not pass, with all groups and cases in which it was the same.
type failure struct {
	// Result is the result of the first case in the first group.
	reports.Result
	// Cases has more than one name only if the reason says everything: where a control plane died, all its cases fail
	// in the same way.
	Cases  []string
	Groups []string
	// Evidence are the files of all cases in all groups.
	Evidence []evidence
	// Anchor is the target of links within the page.
	Anchor string
	// everywhere is true if every group of the report has the failure.
	everywhere bool
}

// evidence is a file that a verdict follows from.
type evidence struct {
	Path string
	// Label is the name of the group, and of the file if it is one of several.
	Label string
}

// foldFailures returns what needs a reader's attention: first what failed, and then what is invalid.
func foldFailures(groups []reports.Group) []failure {
	byCase := newFailureSet(keyOfResult)
	for i := range groups {
		for _, r := range groups[i].Cases {
			if r.Bad() {
				byCase.add(newFailure(groups[i].Name, r))
			}
		}
	}
	byReason := newFailureSet(keyOfReason)
	for _, f := range byCase.list {
		f.everywhere = len(groups) > 1 && len(f.Groups) == len(groups)
		byReason.add(f)
	}
	failures := byReason.list
	slices.SortStableFunc(failures, func(a, b failure) int { return cmp.Compare(rankVerdict(a.Verdict), rankVerdict(b.Verdict)) })
	return failures
}

func newFailure(group string, r reports.Result) failure {
	f := failure{Result: r, Cases: []string{r.Case}, Groups: []string{group}, Anchor: makeAnchor(group, r.Case)}
	for _, file := range r.Evidence {
		label := group
		if len(r.Evidence) > 1 {
			label += "/" + path.Base(file)
		}
		f.Evidence = append(f.Evidence, evidence{file, label})
	}
	return f
}

func rankVerdict(v verdicts.Verdict) int {
	if v == verdicts.Failed {
		return 0
	}
	return 1
}

// makeAnchor returns the ID of a case on the page.
func makeAnchor(group, name string) string {
	return strings.Join(strings.Fields(group+"/"+name), "_")
}

// failureSet merges failures that have the same key.
type failureSet struct {
	key  func(failure) string
	at   map[string]int
	list []failure
}

func newFailureSet(key func(failure) string) *failureSet {
	return &failureSet{key: key, at: map[string]int{}}
}

func (s *failureSet) add(f failure) {
	key := s.key(f)
	i, known := s.at[key]
	if !known {
		s.at[key] = len(s.list)
		s.list = append(s.list, f)
		return
	}
	first := &s.list[i]
	first.Cases = appendMissing(first.Cases, f.Cases)
	first.Groups = appendMissing(first.Groups, f.Groups)
	first.Evidence = append(first.Evidence, f.Evidence...)
}

func appendMissing(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// keyOfResult returns a key that is the same for results that a reader cannot tell apart.
func keyOfResult(f failure) string {
	r := f.Result
	r.Evidence, r.Seconds, r.Judged = nil, 0, 0
	key, err := json.Marshal(r)
	if err != nil {
		return fmt.Sprintf("%+v", r) // every field can be encoded
	}
	return string(key)
}

// keyOfReason returns a key that is the same for cases for which a reader sees only the same reason. It is unique for
// others.
func keyOfReason(f failure) string {
	if explains := len(f.Differences) + len(f.Tables) + len(f.Details); explains > 0 || f.Reason == "" {
		return "case " + f.Anchor
	}
	return fmt.Sprintf("reason %q %q %q %q", f.Verdict, f.Blame, f.Reason, f.Groups)
}

// Title returns the name of the case, and how many more there are.
func (f failure) Title() string {
	if len(f.Cases) == 1 {
		return f.Case
	}
	return fmt.Sprintf("%s and %d more", f.Case, len(f.Cases)-1)
}

// Where returns the names of the groups, or, of many, how many there are.
func (f failure) Where() string {
	if f.everywhere && len(f.Groups) > namedGroups {
		return fmt.Sprintf("all %d groups", len(f.Groups))
	}
	return joinGroups(f.Groups)
}

// namedGroups is how many groups are named if there are too many to name all.
const namedGroups = 4

// joinGroups returns the names of groups, or, of many, how many there are.
func joinGroups(names []string) string {
	if len(names) <= namedGroups+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more groups", strings.Join(names[:namedGroups], ", "), len(names)-namedGroups)
}

// FurtherReason returns what the reason says after the first difference, such as why somebody is to blame.
func (f failure) FurtherReason() string {
	if len(f.Differences) == 0 {
		return strings.TrimSpace(f.Reason)
	}
	d := f.Differences[0]
	for _, said := range []string{
		fmt.Sprintf("step %d: %s: want %s, got %s", d.Step, d.Field, d.Want, d.Got),
		fmt.Sprintf("%s: want %s, got %s", d.Field, d.Want, d.Got),
	} {
		if rest, found := strings.CutPrefix(f.Reason, said); found {
			return strings.TrimPrefix(rest, "; ")
		}
	}
	return strings.TrimSpace(f.Reason)
}

// HasSteps reports whether the differences are of more than the first step of a case.
func (f failure) HasSteps() bool {
	return slices.ContainsFunc(f.Differences, func(d verdicts.Difference) bool { return d.Step > 0 })
}
