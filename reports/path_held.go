package reports

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/verdicts"
)

const (
	// FlowSteady is how long requests flow before an API server is replaced and after the next is ready: enough for hundreds.
	FlowSteady = time.Second
	// FlowWorkers send requests, each one after another, and the setups in turn.
	FlowWorkers = 4
	// flowSlack is by how much FlowSteady may be missed on a busy machine.
	flowSlack = FlowSteady / 2
)

// asked is of the evidence of a stage what the path says of it, without what was seen.
func (e *StageEvidence) asked() *StageEvidence {
	bare := &StageEvidence{Cell: e.Cell, Neighbours: map[string]map[string]int{}}
	bare.Objects = seq.Map(e.Objects, func(o ObjectState) ObjectState { return ObjectState{Path: o.Path} })
	for cell := range e.Neighbours {
		bare.Neighbours[cell] = nil
	}
	if e.Flow != nil {
		bare.Flow = &FlowEvidence{Suffixes: e.Flow.Suffixes}
		for _, stays := range e.Flow.Servers {
			bare.Flow.Servers = append(bare.Flow.Servers, seq.Map(stays, func(s FlowStay) FlowStay { return FlowStay{Cell: s.Cell} }))
		}
	}
	return bare
}

// holdStages holds what is judged, and the evidence of the stages, to what the command line asks for.
func (v *verifier) holdStages(asked *ConformanceReport) {
	if is, want := v.Report.Implementation, asked.Implementation; is != want {
		v.differ("the report is about %v, its command line about %v", is, want)
	}
	is := v.Recomputed.Path
	if is == nil || asked.Path == nil {
		return
	}
	for _, want := range asked.Path.Evidence {
		for _, e := range is.Evidence {
			if got := e.asked(); e.Cell == want.Cell && !same(got, want) {
				v.differ("%s: not as the command line asks: %s", stagePath(e.Cell), changeTo("the command line", got, want))
			}
		}
	}
}

// walked is what is known of a path on the way along it.
type walked struct {
	*verifier
	ids   map[string]string   // of audit events, see holdTimes
	turns []string            // the setups, in the order in which their requests are sent
	stays map[string]FlowStay // by cell, as the flows before have it
	// before and now are when scenarios ran on the stage before and on this one; zero where none did.
	before, now span
	around      float64 // how long the stage before took besides its scenarios
}

// holdPath holds what was seen on the stages of a path to each other: one comes after the other, an API server is away
// between two, and requests flow from the end of the scenarios of one to the beginning of those of the next.
func (v *verifier) holdPath(ids map[string]string) {
	if v.Recomputed.Path == nil {
		return
	}
	w := &walked{verifier: v, ids: ids, stays: map[string]FlowStay{}}
	for _, s := range v.set.All() {
		w.turns = seq.AppendMissing(w.turns, s.Setup)
	}
	ran := v.Report.Finished.Sub(v.Report.Started).Seconds()
	for i, stage := range v.Recomputed.Path.Stages {
		cell := v.Report.cellNamed(stage.Cell)
		if cell == nil || cell.Problem != "" {
			return // it is judged to be invalid, and the path ends there
		}
		begun := i == 0 || i == 1 && v.Report.Path.HighAvailability
		if d := stage.DownSeconds; d < 0 || d > ran || begun && d > 0 || !begun && d != cell.ReadySeconds {
			v.differ("%s: the API server was away for %.1f s, ready after %.1f s, in a run of %.1f s", stage.Cell, d, cell.ReadySeconds, ran)
		}
		w.now = v.ranOn(stage.Cell)
		if w.now.from.Before(w.before.to) {
			v.differ("%s: its scenarios ran before those of the stage before had", stage.Cell)
		}
		around := cell.WallSeconds - w.now.seconds() // what a stage takes besides its scenarios
		for _, e := range v.Recomputed.Path.Evidence {
			if e.Cell != stage.Cell {
				continue
			}
			w.holdStage(cell, stage.DownSeconds, e)
			gap, flows := w.now.from.Sub(w.before.to).Seconds(), e.Flow != nil
			if !begun && (gap < stage.DownSeconds || !flows && gap > stage.DownSeconds+w.around+around+FlowSteady.Seconds()) {
				v.differ("%s: the API server was away for %.1f s, and no scenario ran for %.1f s", stage.Cell, stage.DownSeconds, gap)
			}
		}
		w.before, w.around = w.now, around
	}
}

func (s span) seconds() float64 { return s.to.Sub(s.from).Seconds() }

// ranOn is when scenarios ran on a cell.
func (v *verifier) ranOn(cell string) (all span) {
	for _, e := range v.evidence {
		if e.Cell.Name != cell || e.Started.IsZero() {
			continue
		}
		if all.from.IsZero() || e.Started.Before(all.from) {
			all.from = e.Started
		}
		if e.Ended.After(all.to) {
			all.to = e.Ended
		}
	}
	return all
}

func (w *walked) holdStage(cell *Cell, down float64, e *StageEvidence) {
	file, verbs, total := stagePath(e.Cell), w.verbsOn(e.Cell), 0
	for _, verb := range slices.Sorted(maps.Keys(verbs)) {
		if total += verbs[verb]; e.Verbs[verb] < verbs[verb] {
			w.differ("%s: %d reviews with the verb %s, and %d arrived in its scenarios", file, e.Verbs[verb], verb, verbs[verb])
		}
	}
	if p := cell.Witness.Probes; p != nil { // which are sent when the API server is there
		total += p.Front
	}
	if got := seq.Sum(slices.Collect(maps.Values(e.Verbs)), func(n int) int { return max(n, 0) }); got < total {
		w.differ("%s: %d reviews, and %d arrived in its scenarios and of the witness", file, got, total)
	}
	for _, o := range e.Objects {
		var object struct{ Metadata struct{ Name string } }
		if json.Unmarshal([]byte(o.Body), &object) != nil || object.Metadata.Name != path.Base(o.Path) {
			w.differ("%s: what was read of %s is another object", file, o.Path)
		}
	}
	if e.Flow != nil {
		w.holdStays(file, down, e)
		w.holdSamples(file, e.Flow)
	}
}

// verbsOn counts the reviews at the front of the chain in the scenarios of a cell.
func (w *walked) verbsOn(cell string) map[string]int {
	verbs := map[string]int{}
	for _, e := range w.evidence {
		for _, o := range verdicts.Requests(e.Steps) {
			for _, r := range o.Reviews {
				switch {
				case r.Point != verdicts.Front || e.Cell.Name != cell:
				case r.Spec.ResourceAttributes != nil:
					verbs[r.Spec.ResourceAttributes.Verb]++
				case r.Spec.NonResourceAttributes != nil:
					verbs[r.Spec.NonResourceAttributes.Verb]++
				}
			}
		}
	}
	return verbs
}

// holdStays holds the times of API servers to those that flows before have, and to the scenarios on them.
func (w *walked) holdStays(file string, down float64, e *StageEvidence) {
	var first, last time.Time
	for _, s := range e.Flow.Samples {
		if first.IsZero() {
			first = s.Seen.Sent
		}
		if s.Seen.Answered.After(last) {
			last = s.Seen.Answered
		}
	}
	for _, stays := range e.Flow.Servers {
		for i, stay := range stays {
			known, on := w.stays[stay.Cell], w.ranOn(stay.Cell)
			open := stay.Ended.IsZero()
			if known.Cell != "" && (!known.Ready.Equal(stay.Ready) || !known.Ended.IsZero() && !known.Ended.Equal(stay.Ended)) ||
				open != (i == len(stays)-1) || stay.Ready.After(on.from) || !open && stay.Ended.Before(on.to) {
				w.differ("%s: the API server was not that of %s at the times that it is said to have been", file, stay.Cell)
			}
			w.stays[stay.Cell] = stay
			if stay.Cell != e.Cell || i == 0 {
				continue
			}
			gone := stays[i-1].Ended
			if away := stay.Ready.Sub(gone); away < 0 || away > time.Duration(down*float64(time.Second))+flowSlack {
				w.differ("%s: the API server was away for %s, by the report for %.1f s", file, away, down)
			}
			if gone.Sub(first) < FlowSteady-flowSlack || last.Sub(stay.Ready) < FlowSteady-flowSlack {
				w.differ("%s: requests did not flow for %s before the API server was replaced, and after", file, FlowSteady)
			}
		}
	}
}

// holdSamples holds the requests that flowed to how they are sent: one was left out where the turn of a setup is missing,
// or nobody sends for long.
func (w *walked) holdSamples(file string, f *FlowEvidence) {
	turns := seq.Filter(w.turns, func(setup string) bool { return f.Suffixes[setup] != "" })
	var sent [FlowWorkers]int
	var free [FlowWorkers]time.Time
	from := w.before.to
	for i, s := range f.Samples {
		if id := s.Seen.Response.AuditID; id != "" {
			if other := w.ids[id]; other != "" {
				w.differ("%s: the audit ID %s is also one of %s", file, id, other)
			}
			w.ids[id] = file
		}
		if s.Error != "" && (s.Seen.Audit != nil || s.Server >= 0) || s.Error == "" && s.Seen.Response.Code == 0 {
			w.differ("%s: request %d was answered, and was not", file, i)
		}
		if s.Seen.Sent.Before(from) || s.Seen.Answered.Before(s.Seen.Sent) || s.Seen.Answered.After(w.now.from) {
			w.differ("%s: request %d was not sent behind the one before, between the scenarios of two stages", file, i)
		}
		from = s.Seen.Sent
		by := -1
		for n := range FlowWorkers {
			next := len(turns) > 0 && turns[(n+sent[n])%len(turns)] == s.Setup && !free[n].After(s.Seen.Sent)
			if next && (by < 0 || free[n].Before(free[by])) {
				by = n
			}
		}
		if by < 0 || !free[by].IsZero() && s.Seen.Sent.Sub(free[by]) > verdicts.ClockTolerance {
			w.differ("%s: request %d, of the setup %s, was not the next: others were sent before it that are not there", file, i, s.Setup)
			return
		}
		sent[by], free[by] = sent[by]+1, s.Seen.Answered
	}
	for n := range free { // from is when the last of all was sent: whoever was free by then sent another one
		if from.Sub(free[n]) > verdicts.ClockTolerance {
			w.differ("%s: requests that were sent at its end are not there", file)
		}
	}
}
