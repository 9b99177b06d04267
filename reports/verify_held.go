package reports

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// holdToCommand holds the cells, what was to be run on them and what was left out to the recorded command line.
func (v *verifier) holdToCommand(o VerifyOptions) {
	if o.Plan == nil {
		return
	}
	set := v.set
	if o.Builtin != nil { // of which an upgrade path takes some: which, the report does not choose
		set = o.Builtin
	}
	asked, err := o.Plan(v.Report, set)
	if err != nil {
		v.differ("the report cannot be held to its command line %q: %v", v.Report.Command, err)
		return
	}
	if got, want := cellNames(v.Report.Cells), cellNames(asked.Cells); !slices.Equal(got, want) {
		v.differ("the report has the cells %q, its command line asks for %q", got, want)
		return
	}
	for i, want := range asked.Cells {
		got := v.Report.Cells[i]
		bare := Cell{Cell: got.Cell, Facts: got.Facts, NotRun: got.NotRun}
		bare.Witness.AskedAuthorizers, bare.Witness.ExpectedGate = got.Witness.AskedAuthorizers, got.Witness.ExpectedGate
		if got.Problem != "" || got.Facts.Capabilities.Foreign() {
			bare.Witness = want.Witness // it was not read, or the chain is somebody else's
		}
		unsupported := func(r verdicts.Result) bool { return r.Verdict != verdicts.NotSupported }
		bare.Results = slices.DeleteFunc(slices.Clone(got.Results), unsupported)
		if len(bare.Results) == 0 {
			bare.Results = nil
		}
		for _, c := range []*Cell{&bare, &want} {
			slices.SortFunc(c.NotRun, func(a, b NotRun) int { return strings.Compare(a.Scenario, b.Scenario) })
			slices.SortFunc(c.Results, func(a, b verdicts.Result) int { return strings.Compare(a.Scenario, b.Scenario) })
		}
		if (got.Agents == nil) != (want.Agents == nil) && got.Problem == "" {
			v.differ("%s: there are checks of node agents: %t; by the command line: %t", got.Name, got.Agents != nil, want.Agents != nil)
		}
		want.Agents = nil
		if !same(bare, want) {
			v.differ("%s: not as the command line asks: %s", got.Name, changeTo("the command line", bare, want))
		}
	}
	if is := v.Report.Path.asked(); !same(is, asked.Path) {
		v.differ("the path is not as the command line asks: %s", changeTo("the command line", is, asked.Path))
	}
	v.holdStages(asked)
	if !same(v.Report.Require, asked.Require) {
		v.differ("the report requires the levels %v, its command line %v", v.Report.Require, asked.Require)
	}
	if !same(statedOnly(v.Report.KnownFailing), statedOnly(asked.KnownFailing)) {
		v.differ("the known-failing entries are not those of the command line")
	}
}

// holdAgents judges what was seen of node agents again.
func (v *verifier) holdAgents(o VerifyOptions) {
	for _, c := range v.Report.Cells {
		if c.Agents == nil || o.Agents == nil {
			continue
		}
		again, err := o.Agents(v.Report.Seed, c.Name, c.Agents)
		switch {
		case err != nil:
			v.differ("%s: %v", c.Name, err)
		case !same(c.Agents, again):
			v.differ("%s: the checks of the node agents do not follow from what was seen of them: %s", c.Name, change(c.Agents, again))
		}
	}
}

func statedOnly(list []KnownFailingState) []KnownFailing {
	return seq.Map(list, func(k KnownFailingState) KnownFailing { return k.KnownFailing })
}

func cellNames(cells []Cell) []string {
	return seq.Map(cells, func(c Cell) string { return c.Name })
}

type span struct {
	from, to time.Time
	file     string
}

// holdTogether holds the pieces of evidence to each other and to the run: names that follow from the seed, audit IDs
// that are there once, and times in which one request of a cell follows the other. What was taken from another
// scenario, cell or run does not fit.
func (v *verifier) holdTogether() {
	if v.Report.Started.IsZero() {
		v.differ("the run began at no time")
	}
	ids, spans, beside := map[string]string{}, map[string][]span{}, map[string]bool{}
	for _, e := range v.evidence {
		file := evidencePath(e.Cell.Name, e.Scenario)
		s, known := v.set.Get(e.Scenario)
		beside[file] = known && slices.ContainsFunc(s.Steps, func(st scenarios.Step) bool { return st.Beside })
		if c := e.Control; c != nil && (c.Scenario != e.Scenario || c.Digest != e.Digest || c.Cell != e.Cell || !slices.Equal(c.Capabilities, e.Capabilities)) {
			v.differ("%s: the control run is of another scenario or target", file)
		}
		for _, one := range []struct {
			e    *verdicts.Evidence
			more []string
		}{{e, nil}, {e.Control, []string{"control"}}} {
			if one.e == nil || len(one.e.Steps) == 0 || !known {
				continue
			}
			v.holdNames(file, s, one.e, one.more)
			v.holdTimes(file, one.e, one.e.Steps, ids, spans)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(spans)) {
		list := spans[name]
		slices.SortFunc(list, func(a, b span) int { return a.from.Compare(b.from) })
		for i := 1; i < len(list); i++ {
			if together := beside[list[i].file] && list[i].file == list[i-1].file; list[i].from.Before(list[i-1].to) && !together {
				v.differ("%s: a request was sent while one of %s was under way, and a cell has one at a time", list[i].file, list[i-1].file)
			}
		}
		v.holdCell(v.Report.cellNamed(name), list)
	}
	v.holdPath(ids)
	v.holdCells()
}

// holdNames holds the names of a piece of evidence to the seed of the run.
func (v *verifier) holdNames(file string, s *scenarios.Scenario, e *verdicts.Evidence, more []string) {
	parts := append([]string{e.Cell.Name, e.Scenario}, more...)
	if v.Report.Path != nil && len(more) == 0 {
		parts = []string{"path", s.Setup}
	}
	if want := scenarios.Suffix(v.Report.Seed, parts...); e.Suffix != want {
		v.differ("%s: its names end in %q, those of this scenario, cell and seed end in %q", file, e.Suffix, want)
	}
	_, names := s.BindOn(e.Suffix, e.Nodes)
	if clean, err := RedactEvidence(&verdicts.Evidence{Names: names}); err != nil || !maps.Equal(clean.Names, e.Names) {
		v.differ("%s: its names are not those of the scenario", file)
	}
}

// holdTimes holds what was seen of requests to the times between which they were under way.
func (v *verifier) holdTimes(file string, e *verdicts.Evidence, seen []verdicts.Observation, ids map[string]string, spans map[string][]span) {
	for i := range seen {
		o := &seen[i]
		if o.Sent.Before(e.Started) || o.Answered.Before(o.Sent) || o.Answered.After(e.Ended) ||
			e.Started.Before(v.Report.Started) || e.Ended.After(v.Report.Finished) {
			v.differ("%s: step %d was not under way while its scenario and the run were", file, o.Step)
		}
		if o.Client != nil {
			v.holdTimes(file, e, o.Requests, ids, spans)
			continue
		}
		spans[e.Cell.Name] = append(spans[e.Cell.Name], span{o.Sent, o.Answered, file})
		within := func(what string, at time.Time) {
			if at.Before(o.Sent.Add(-verdicts.ClockTolerance)) || at.After(o.Answered.Add(verdicts.ClockTolerance)) {
				v.differ("%s: step %d: the time of %s is not that of the request", file, o.Step, what)
			}
		}
		for _, r := range o.Reviews {
			within("a review", r.At)
		}
		if event := verdicts.AuditOf(o); event != nil && !e.Capabilities.Foreign() {
			within("the audit event", event.RequestReceivedTimestamp.Time)
		}
		if id := o.Response.AuditID; id != "" {
			if other := ids[id]; other != "" {
				v.differ("%s: its audit ID %s is also one of %s", file, id, other)
			}
			ids[id] = file
		}
	}
}

// holdCell holds the times of a cell to those of its requests.
func (v *verifier) holdCell(c *Cell, list []span) {
	if c == nil || len(list) == 0 {
		return
	}
	ran, run := list[len(list)-1].to.Sub(list[0].from).Seconds(), v.Report.Finished.Sub(v.Report.Started).Seconds()
	if slack := verdicts.ClockTolerance.Seconds(); c.WallSeconds+slack < ran || c.WallSeconds > run+slack || c.ReadySeconds < 0 || c.ReadySeconds > run+slack {
		v.differ("%s: its times do not fit: %.1f s to start, %.1f s with scenarios, of which requests took %.1f s, in a run of %.1f s",
			c.Name, c.ReadySeconds, c.WallSeconds, ran, run)
	}
}

// holdBuiltin finds scenarios that are not those to judge by.
func (v *verifier) holdBuiltin(builtin *scenarios.Set) {
	theirs := map[string]string{}
	for _, s := range v.set.All() {
		theirs[s.ID] = s.Digest
	}
	var wrong []string
	for _, s := range builtin.All() {
		digest, ok := theirs[s.ID]
		delete(theirs, s.ID)
		switch {
		case !ok && v.Report.Path != nil && !slices.Contains(v.set.Setups(), s.Setup):
			// The path has no part for it, which is held to the command line.
		case !ok:
			wrong = append(wrong, s.ID+" is missing")
		case digest != s.Digest:
			wrong = append(wrong, s.ID+" has another text")
		}
	}
	wrong = append(wrong, seq.Map(slices.Sorted(maps.Keys(theirs)), func(id string) string { return id + " is not one of them" })...)
	if len(wrong) == 0 {
		v.note("the scenario texts are unaltered")
		return
	}
	v.differ("the scenario texts differ from those to judge by (built in, unless --scenarios names others): %s; the first: %s", Plural(len(wrong), "difference"), wrong[0])
}

func (v *verifier) compare(suiteVersion string) {
	before, is, again := len(v.Differences), v.Report, v.Recomputed
	type part struct {
		what      string
		got, want any
	}
	var parts []part
	for i, got := range is.Cells {
		want := again.Cells[i]
		v.compareResults(got, want)
		parts = append(parts, part{got.Name + ": the mismatches do not follow from what the witness read", got.Witness.Mismatches, want.Witness.Mismatches},
			part{got.Name + ": the summary does not follow from the results", got.Summary, want.Summary})
	}
	for _, part := range append(parts, []part{
		{"the list of scenarios is not that of the folder " + scenariosDir, is.Scenarios, again.Scenarios},
		{"the digest of the scenarios is not that of their list", is.ScenariosDigest, again.ScenariosDigest},
		{"the findings do not follow from the evidence", is.Findings, again.Findings},
		{"the claims about the path do not follow from the evidence", is.Path, again.Path},
		{"the known-failing states do not follow from the results", is.KnownFailing, again.KnownFailing},
		{"the outcome does not follow from the results", is.Outcome, again.Outcome},
	}...) {
		if !same(part.got, part.want) {
			v.differ("%s: %s", part.what, change(part.got, part.want))
		}
	}
	if data, err := encodeReport(again); before == len(v.Differences) && (err != nil || !bytes.Equal(data, v.Marker)) {
		// It was edited in comments, order or formatting only. A reader could believe a comment.
		say := v.note
		if suiteVersion == is.SuiteVersion && released(suiteVersion) {
			say = v.differ
		}
		say("%s says the same, but not as this authzconf writes it", reportFile)
	}
}

func (v *verifier) compareResults(got, want Cell) {
	again := map[string]verdicts.Result{}
	for _, r := range want.Results {
		again[r.Scenario] = r
	}
	for _, r := range got.Results {
		w, ok := again[r.Scenario]
		switch {
		case !ok || same(r, w):
		case r.Verdict != w.Verdict:
			v.differ("%s on %s: the report says %s, the evidence says %s%s", r.Scenario, got.Name, r.Verdict, w.Verdict, because(w))
		default:
			v.differ("%s on %s: %s, but not as the report says: %s", r.Scenario, got.Name, r.Verdict, change(r, w))
		}
	}
}

func because(r verdicts.Result) string {
	if r.Reason == "" {
		return ""
	}
	return ": " + FirstLine(r.Reason)
}

// change words the first place at which two values differ, for example "reason: the report says x, the evidence y".
func change(report, evidence any) string {
	return changeTo("the evidence", report, evidence)
}

// changeTo is change for what something else than the evidence says.
func changeTo(other string, report, says any) string {
	where, a, b := firstChange("", generic(report), generic(says))
	return fmt.Sprintf("%s: the report says %s, %s %s", strings.TrimPrefix(where, "."), brief(a), other, brief(b))
}

// released says whether a version names one source text, a tag or a commit: builds of a changed checkout, and those that
// do not know it, all have the same one.
func released(version string) bool {
	return sourceVersion.MatchString(version) && !strings.Contains(version, "dirty")
}

var sourceVersion = regexp.MustCompile(`^(v[0-9].*|[0-9a-f]{7,40})$`)

// comparePages makes the pages again. Another authzconf may make others, so then it has to say whether these are its.
func (v *verifier) comparePages(suiteVersion string) {
	if !v.OK() {
		return // They would differ for the reasons that were found already.
	}
	bare := *v.Report
	bare.Files = nil
	pages, err := renderPages(&bare, v.evidence, v.set)
	if err != nil {
		v.differ("the pages cannot be made again: %v", err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		switch {
		case bytes.Equal(pages[name], v.files[name]):
		case suiteVersion == v.Report.SuiteVersion && released(suiteVersion):
			v.differ("%s: is not what the evidence gives", name)
		default:
			v.Unjudged = append(v.Unjudged, fmt.Sprintf("%s: authzconf %s wrote it; authzconf %s would write another page, and cannot tell whether this one was edited", name, v.Report.SuiteVersion, suiteVersion))
		}
	}
}
