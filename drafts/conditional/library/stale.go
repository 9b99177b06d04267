package library

import (
	"fmt"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// findStale counts how often each entry of the list was seen, and returns the entries that are no longer true. Each
// divergence must be seen, and each vector that it names must differ. An absent part must name known vectors.
func (l *List) findStale(all, countedVectors []*vectors.Vector, findings map[string]Finding) (stale []string) {
	ids, differing := map[string]bool{}, map[string]bool{}
	for _, v := range all {
		ids[v.ID] = true
	}
	for _, v := range countedVectors {
		l.countSeen(v, findings[v.ID])
		kind := findings[v.ID].Kind
		differing[v.ID] = kind == Divergent || kind == Failed
	}
	for _, d := range l.Divergences {
		stale = append(stale, checkEntry("divergence", d, "nothing differs any more", differing, "does not differ, or is not a vector")...)
	}
	for _, d := range l.Absent {
		stale = append(stale, checkEntry("absent", d, "no vector is about it", ids, "is not a vector")...)
	}
	for _, d := range l.Absent {
		if probe := probes[d.Probe]; probe == nil {
			stale = append(stale, fmt.Sprintf("absent %s: probe %q is unknown", d.Name, d.Probe))
		} else if probe() {
			stale = append(stale, fmt.Sprintf("absent %s: it is there by now (%s)", d.Name, d.Probe))
		}
	}
	return stale
}

// countSeen counts a vector for the entries that it was seen with.
func (l *List) countSeen(v *vectors.Vector, f Finding) {
	if v.APIServer == nil {
		return
	}
	if absent := find(l.Absent, v.ID); absent != nil {
		absent.Seen++
	}
	if f.Kind == Divergent {
		f.Known.Seen++
	}
}

// checkEntry returns why an entry is no longer true: it was not seen, or it names wrong vectors.
func checkEntry(what string, d Divergence, unseen string, right map[string]bool, wrong string) (stale []string) {
	if d.Seen == 0 {
		stale = append(stale, fmt.Sprintf("%s %s: %s", what, d.Name, unseen))
	}
	for _, id := range d.ids() {
		if !right[id] {
			stale = append(stale, fmt.Sprintf("%s %s: %s %s", what, d.Name, id, wrong))
		}
	}
	return stale
}
