package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/engine/auditlog"
	"github.com/authzconf/authzconf/reports"
)

// printStats says what was in the log.
func printStats(w io.Writer, s auditlog.Stats) {
	_, _ = fmt.Fprintf(w, "%s, %.1f MB: %s, %d that impersonate (%d of them another event of the same request), %d refused\n",
		reports.Plural(s.Files, "file"), float64(s.Bytes)/1e6, reports.Plural(int(s.Events), "event"), s.Impersonated, s.Again, s.Refused)
	if s.Bad == 0 {
		return
	}
	_, _ = fmt.Fprintf(w, "not an audit event: %s\n", reports.Plural(int(s.Bad), "line"))
	for _, b := range s.FirstBad {
		item := ""
		if b.Item > 0 {
			item = fmt.Sprintf(" (item %d)", b.Item)
		}
		_, _ = fmt.Fprintf(w, "  %s:%d%s: %s\n", b.File, b.Line, item, b.Why)
	}
	if more := s.Bad - int64(len(s.FirstBad)); more > 0 {
		_, _ = fmt.Fprintf(w, "  and %d more\n", more)
	}
}

// printAdvice prints the RBAC with what is to be said about it as comments, so that
// the whole can be applied.
func printAdvice(out io.Writer, a *advice.Advice, present []map[string]any, manifests []byte) error {
	var b bytes.Buffer
	b.WriteString("# Constrained impersonation (KEP-5284) for what was seen in the audit log. It takes\n# effect where nobody grants the same requestors more: legacy impersonation is tried\n# after it.\n")
	for _, r := range a.Requestors {
		fmt.Fprintf(&b, "# %s: %s as %s, %s. RBAC cannot tie one to the other: of %d combinations %d were seen.\n",
			printable(r.Name), reports.Plural(int(r.Requests), "request"), reports.Plural(r.Identities, "user"), reports.Plural(r.Actions, "action"), r.Allowed, r.Seen)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Masters)) {
		fmt.Fprintf(&b, "# %s: %s, all as a member of system:masters, to whom no permission applies.\n", printable(name), reports.Plural(int(a.Masters[name]), "request"))
	}
	printKept(&b, a.Kept)
	if present != nil {
		printLegacy(&b, a.Legacy(present))
	}
	b.Write(manifests)
	_, err := out.Write(b.Bytes())
	return err
}

func printKept(b *bytes.Buffer, kept []advice.Kept) {
	if len(kept) == 0 {
		return
	}
	b.WriteString("#\n# Not possible with constrained impersonation, and left to legacy grants:\n")
	for _, k := range kept {
		fmt.Fprintf(b, "#   %s as %s (%s): %s\n", printable(k.Requestor), printable(k.As.User), reports.Plural(int(k.Requests), "request"), printable(k.Why))
	}
}

func printLegacy(b *bytes.Buffer, rules []advice.LegacyRule) {
	b.WriteString("#\n# Present legacy grants:\n")
	if len(rules) == 0 {
		b.WriteString("#   none\n")
	}
	for _, l := range rules {
		fmt.Fprintf(b, "#   %s, rule %d (%s), to %s by %s: ", l.Role, l.Rule, strings.Join(l.Resources, ", "), printable(l.Subject.User+l.Subject.Group), l.Binding)
		switch {
		case !l.Unneeded():
			fmt.Fprintf(b, "needed for %s above", reports.Plural(len(l.NeededFor), "impersonation"))
		case l.Wildcard:
			b.WriteString("not needed, but its verb * is more than impersonation: narrow it")
		case !l.Used:
			b.WriteString("not needed: it was not seen to impersonate")
		default:
			b.WriteString("not needed any more: remove it")
		}
		b.WriteString("\n")
	}
}

// withoutNeighbour says in how many cases there was no neighbour to try.
func withoutNeighbour(without map[string]int) string {
	var parts []string
	for _, differs := range slices.Sorted(maps.Keys(without)) {
		parts = append(parts, fmt.Sprintf("%d without another %s that is not granted", without[differs], differs))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
