package record

import (
	"bytes"
	"fmt"
)

// Open reads the record of a report from the files of its folder, and checks that it is complete: every file in the
// index exists and has the digest that the index states, every entry is chained to the previous one, and the last one
// is the head that the report names. Each difference is a line. The view can be used only if there are none.
func Open(read func(name string) ([]byte, error), head Head) (view View, differences []string) {
	index, err := read(IndexFile)
	if err != nil {
		return view, []string{fmt.Sprintf("%s: %v", IndexFile, err)}
	}
	entries, err := decodeIndex(index)
	if err != nil {
		return view, []string{err.Error()}
	}
	if headOf(entries) != head {
		differences = append(differences, IndexFile+": it is not the record that the report names")
	}
	log := New()
	for i, e := range entries {
		data, err := read(e.File)
		if err != nil {
			differences = append(differences, fmt.Sprintf("%s: %v", e.File, err))
			continue
		}
		if Digest(data) != e.SHA256 {
			differences = append(differences, e.File+": its digest is not the one in "+IndexFile)
			continue
		}
		if err := log.add(e.File, data); err != nil {
			differences = append(differences, fmt.Sprintf("%s: line %d: %v", IndexFile, i+1, err))
		}
	}
	if len(differences) == 0 && log.Head() != head {
		differences = append(differences, IndexFile+": its entries are not chained to each other")
	}
	return log.View(), differences
}

// Index returns the paths of the files that an index lists, or none if it cannot be read.
func Index(index []byte) (names []string) {
	entries, err := decodeIndex(index)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		names = append(names, e.File)
	}
	return names
}

func decodeIndex(index []byte) (entries []Entry, err error) {
	for n, line := range bytes.Split(bytes.TrimSuffix(index, []byte("\n")), []byte("\n")) {
		var e Entry
		if err := DecodeStrictly(line, &e); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", IndexFile, n+1, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}
