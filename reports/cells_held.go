package reports

import (
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/verdicts"
)

// holdCells holds the cells to each other: each has a control plane of its own, whose objects no other has, and programs
// that are no other's under another version. What was taken from another cell, or called by its name, does not fit.
func (v *verifier) holdCells() {
	all := v.Report.Programs()
	for i, p := range all {
		for _, q := range all[:i] {
			if p.Name == q.Name && p.Version != "" && q.Version != "" && (p.Version == q.Version) != (p.SHA256 == q.SHA256) {
				v.differ("%s and %s: one program has one version, and a version is one program: their SHA-256 are %s and %s",
					q.Title(), p.Title(), ShortDigest(q.SHA256), ShortDigest(p.SHA256))
			}
		}
	}
	// Cells that differ in the authorizer chain may share a control plane, and the stages of a path share its etcd.
	homes := map[string]verdicts.Cell{}
	for _, e := range v.evidence {
		home := e.Cell
		if home.Name = ""; v.Report.Path != nil {
			home = verdicts.Cell{}
		}
		for _, o := range verdicts.Requests(e.Steps) {
			for _, uid := range []string{o.Response.FlowSchemaUID, o.Response.PriorityLevelUID} {
				if other, known := homes[uid]; uid != "" && known && other != home {
					v.differ("%s: the answer names an object %s, which is of the control plane of another cell", evidencePath(e.Cell.Name, e.Scenario), uid)
				}
				homes[uid] = home
			}
		}
	}
	v.holdParallel()
}

// holdParallel holds how many cells ran at once to when their scenarios ran.
func (v *verifier) holdParallel() {
	spans := seq.Map(v.Report.Cells, func(c Cell) span { return v.ranOn(c.Name) })
	most := 0
	for _, at := range spans {
		most = max(most, len(seq.Filter(spans, func(s span) bool { return !s.from.After(at.from) && s.to.After(at.from) })))
	}
	if p := v.Report.Parallel; p > len(v.Report.Cells) || most > max(1, p) {
		v.differ("%s at once, of %d, and scenarios ran on %d", Plural(max(1, p), "cell"), len(v.Report.Cells), most)
	}
}
