package library

import (
	"fmt"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/verdicts"
)

// Kind is the result of a comparison of the library with a vector.
type Kind string

// The kinds of results.
const (
	// Agree means that the library does what the vector says.
	Agree Kind = "agree"
	// Part means that the library does what the vector says, as far as the library takes part in it. The rest of the
	// vector is judged by our own model only.
	Part Kind = "part"
	// Absent means that the library does not take part in the vector.
	Absent Kind = "absent"
	// Divergent means that the library differs from the vector in a known way.
	Divergent Kind = "divergent"
	// Failed means that the library differs from the vector in an unknown way.
	Failed Kind = "failed"
)

// Finding is the result of a comparison with a vector.
type Finding struct {
	Kind Kind
	// Known is the entry of the list that is about the vector. It is nil if there is none.
	Known *Divergence
	// Differences are the differences between the library and the vector.
	Differences []string
	// Stale says what is no longer true about the entry. It is empty if the entry is true.
	Stale string
}

// Compare compares what the library answers to an API-server vector with what the KEP says, and with the known
// divergences.
func (l *List) Compare(v *vectors.Vector, observed *vectors.Want) Finding {
	got := *observed
	absent := find(l.Absent, v.ID)
	if absent != nil { // calls of authorizers by the filter and the enforcer are unknown
		got.AskedLater, got.EvaluatedBy = nil, nil
	}
	lazy := v.APIServer.WantIn(vectors.Lazy)
	differences := lazy.Differences(&got)
	switch {
	case lazy.Stated(&got) == 0, l.hasNoPart(v):
		return Finding{Kind: Absent, Known: absent}
	case len(differences) == 0 && absent != nil:
		return Finding{Kind: Part, Known: absent}
	case len(differences) == 0:
		return Finding{Kind: Agree}
	}
	return l.explain(v, &got, differences)
}

// hasNoPart reports whether the library takes no part in a vector, because what would decide does not exist yet.
func (l *List) hasNoPart(v *vectors.Vector) bool {
	absent, server := find(l.Absent, v.ID), v.APIServer.Server
	isAbsent := absent != nil && !absent.Part
	return isAbsent || server.Version == "old" || server.Gate != "on"
}

// explain looks for the known divergence that explains differences. The library reads the chain eagerly.
func (l *List) explain(v *vectors.Vector, got *vectors.Want, differences []string) Finding {
	eager := v.APIServer.WantIn(vectors.Eager)
	rest := eager.Differences(got)
	for i := range l.Divergences {
		d := &l.Divergences[i]
		answer := d.answer(v.ID)
		if answer == nil {
			if d.Reading == vectors.Eager && len(rest) == 0 {
				return Finding{Kind: Divergent, Known: d}
			}
			continue
		}
		then := eager.But(*answer)
		if rest = then.Differences(got); len(rest) > 0 {
			continue
		}
		f := Finding{Kind: Divergent, Known: d}
		if stated, differs := answer.Stated(answer), len(eager.Differences(answer)); stated != differs {
			f.Stale = fmt.Sprintf("divergence %s: %s: %d of the fields that are stated do not differ", d.Name, v.ID, stated-differs)
		}
		return f
	}
	if len(rest) == 0 {
		rest = differences
	}
	return Finding{Kind: Failed, Differences: rest}
}

// Result returns the verdict on the library. A known divergence is no failure, and neither is a vector in which the
// library takes no part.
func (f Finding) Result() vectors.Result {
	switch f.Kind {
	case Failed:
		return vectors.Result{Verdict: verdicts.Failed, Why: f.Differences}
	case Divergent:
		return vectors.Result{Verdict: verdicts.NotSupported, Why: []string{"a known divergence, " + f.Known.Name + ": " + f.Known.Instead}}
	case Absent:
		return vectors.Result{Verdict: verdicts.NotSupported, Why: []string{"the library has no part for it"}}
	}
	return vectors.Result{Verdict: verdicts.Passed}
}
