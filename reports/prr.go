package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// PRR writes what a KEP's author needs under "Were upgrade and rollback tested?"
// of the production readiness questionnaire: what was run, what came out, how to
// do it again, and the digest of the evidence. It says yes only if everything
// passed. An error means that the report is not one of an upgrade path, or does
// not follow from its evidence.
func PRR(v *Verification) (string, error) {
	r := v.Report
	if r.Path == nil {
		return "", fmt.Errorf("this is the report of a run, not of an upgrade path: make one with authzconf upgrade --report-dir DIR")
	}
	if !v.OK() {
		return "", fmt.Errorf("the report does not follow from its evidence: %s", v.Differences[0])
	}
	b := &strings.Builder{}
	b.WriteString("###### Were upgrade and rollback tested? Was the upgrade->downgrade->upgrade path tested?\n\n")
	prrAnswer(b, r)
	pathStages(b, r)
	pathRequests(b, r, v.Evidence, v.Set)
	pathClaims(b, r)
	prrReproduce(b, r, v.Digest)
	return b.String(), nil
}

func prrAnswer(b *strings.Builder, r *ConformanceReport) {
	switch r.Outcome.Result {
	case RunPassed:
		b.WriteString("Yes. ")
	case RunFailed:
		b.WriteString("Yes, and it failed; see below. ")
	default:
		b.WriteString("Not to an end; see below. ")
	}
	servers := "one kube-apiserver"
	if r.Path.HighAvailability {
		servers = "two kube-apiservers behind a balancer, replaced one after the other while requests flowed,"
	}
	fmt.Fprintf(b, "On %s, [authzconf](https://github.com/authzconf/authzconf) %s took %s and one etcd along %s. "+
		"Roles, bindings, service accounts and tokens were made once and kept.",
		r.Started.Format("2006-01-02"), r.SuiteVersion, servers, plural(len(r.Path.Stages), "stage"))
	if d := strings.TrimSpace(r.Path.Description); d != "" {
		fmt.Fprintf(b, "\n\n%s", strings.Join(strings.Fields(d), " "))
	}
	b.WriteString("\n\n")
	for _, why := range r.Outcome.Reasons {
		fmt.Fprintf(b, "- %s\n", markdown(why))
	}
	if len(r.Outcome.Reasons) > 0 {
		b.WriteString("\n")
	}
}

// pathStages is a row per stage.
func pathStages(b *strings.Builder, r *ConformanceReport) {
	b.WriteString("| stage | kube-apiserver | emulates | ConstrainedImpersonation | on the way here | scenarios passed | access reviews | of them constrained |\n")
	b.WriteString("|--:|---|---|---|---|--:|--:|--:|\n")
	for i, stage := range r.Path.Stages {
		c := r.Cells[i]
		passed := 0
		for _, result := range c.Results {
			if result.Verdict == verdicts.Passed {
				passed++
			}
		}
		gate := string(c.Facts.Gate)
		switch {
		case c.Witness.GateMetric == "absent":
			gate = "not there"
		case c.Gate == "default":
			gate += " (default)"
		}
		fmt.Fprintf(b, "| %d | %s | %s | %s | %s | %d of %d | %d | %d |\n", i+1, cmp.Or(c.Witness.GitVersion, "not reached"), c.Emulated, gate,
			strings.ReplaceAll(stage.Fault, "-", " "), passed, len(c.Results), stage.Reviews, stage.ConstrainedReviews)
	}
	b.WriteString("\n")
}

// pathRequests is a row per setup: what became of its request on each stage.
func pathRequests(b *strings.Builder, r *ConformanceReport, evidence []*verdicts.Evidence, set *scenarios.Set) {
	b.WriteString("| permissions |")
	for i := range r.Path.Stages {
		fmt.Fprintf(b, " stage %d |", i+1)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(r.Path.Stages)) + "\n")
	for _, row := range setupRows(r, evidence, set) {
		fmt.Fprintf(b, "| %s | %s |\n", row.Name, strings.Join(row.Answers, " | "))
	}
	b.WriteString("\n")
}

// setupRows leaves out setups that no stage is for.
func setupRows(r *ConformanceReport, evidence []*verdicts.Evidence, set *scenarios.Set) []setupRow {
	at := index(evidence)
	var rows []setupRow
	for _, setup := range set.Setups() {
		row := setupRow{Name: setup}
		for _, c := range r.Cells {
			row.Answers = append(row.Answers, setupAnswer(set, at, &c, setup))
		}
		if slices.ContainsFunc(row.Answers, func(answer string) bool { return answer != notForStage }) {
			rows = append(rows, row)
		}
	}
	return rows
}

// notForStage stands where a setup has no scenario for a stage.
const notForStage = "–"

// setupAnswer is what was seen of a setup's last request on a stage.
func setupAnswer(set *scenarios.Set, at map[key]*verdicts.Evidence, c *Cell, setup string) string {
	i := slices.IndexFunc(c.Results, func(r verdicts.Result) bool {
		s, ok := set.Get(r.Scenario)
		return ok && s.Setup == setup
	})
	if i < 0 {
		return notForStage
	}
	result := c.Results[i]
	e := at[key{c.Name, result.Scenario}]
	if e == nil || len(e.Steps) == 0 {
		return string(result.Verdict)
	}
	o := &e.Steps[len(e.Steps)-1]
	text := fmt.Sprintf("refused (%d)", o.Response.Code)
	if event := verdicts.AuditOf(o); event != nil && event.ImpersonatedUser != nil {
		text = "allowed"
		if m := event.AuthenticationMetadata; m != nil && m.ImpersonationConstraint != "" {
			text += " by " + m.ImpersonationConstraint
		} else {
			text += " by impersonate"
		}
	}
	if result.Verdict != verdicts.Passed {
		text += " (" + string(result.Verdict) + ")"
	}
	return text
}

// pathClaims lists what was claimed of each stage.
func pathClaims(b *strings.Builder, r *ConformanceReport) {
	for i, stage := range r.Path.Stages {
		for _, claim := range stage.Claims {
			fmt.Fprintf(b, "- stage %d, %s: %s (%s)\n", i+1, strings.ReplaceAll(claim.Name, "-", " "), claim.Verdict, markdown(claim.Detail))
		}
	}
	b.WriteString("\n")
}

func prrReproduce(b *strings.Builder, r *ConformanceReport, digest string) {
	fmt.Fprintf(b, "To do it again: `%s`, with `--seed %d` for the same names. The evidence (`report.yaml`, which holds the SHA-256 of every other file) has the SHA-256 `%s`; `authzconf verify` recomputes every verdict from it.\n",
		strings.Join(r.Command, " "), r.Seed, digest)
}
