package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/internal/seq"
)

// listVectors prints the vectors of KEP-5681 that the flags select.
func (f *selectionFlags) listVectors(w io.Writer, output string) error {
	all, err := f.vectors()
	if err != nil {
		return err
	}
	focus, err := pattern("focus", f.focus)
	if err != nil {
		return err
	}
	skip, err := pattern("skip", f.skip)
	if err != nil {
		return err
	}
	if all, err = selectIDs(all, func(v *vectors.Vector) string { return v.ID }, focus, skip); err != nil {
		return err
	}
	switch output {
	case "":
		return renderTable(w, "vectors", seq.Map(all, func(v *vectors.Vector) listedVector { return listedVector{v} }), 0)
	case "json":
		return printAs(w, output, "", all)
	}
	return fmt.Errorf("-o %q is not json", output)
}

// selectIDs returns the items whose ID matches focus and does not match skip. Either may be nil.
func selectIDs[T any](all []T, id func(T) string, focus, skip *regexp.Regexp) ([]T, error) {
	selection := seq.Filter(all, func(item T) bool {
		skipped := skip != nil && skip.MatchString(id(item))
		focused := focus == nil || focus.MatchString(id(item))
		return focused && !skipped
	})
	if len(selection) == 0 {
		return nil, errors.New("no scenario matches")
	}
	return selection, nil
}

// listedVector is a vector with the revisions of the wire that it is applicable to.
type listedVector struct{ *vectors.Vector }

// Wire returns which revisions cannot express the vector, and why.
func (v listedVector) Wire() string {
	var not []string
	for _, w := range wire.Revisions() {
		if why := w.Cannot(v.Vector); why != "" {
			not = append(not, fmt.Sprintf("not %s (%s)", w.Name, why))
		}
	}
	return cmp.Or(strings.Join(not, ", "), "all")
}
