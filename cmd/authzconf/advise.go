package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/advice/verification"
	"github.com/authzconf/authzconf/engine/auditlog"
	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/reports"
)

type adviseFlags struct {
	rbac        string
	options     advice.Options
	verify      bool
	verifyLimit int
	seed        uint64
	kubernetes  string
}

func newAdvise() *cobra.Command {
	var flags adviseFlags
	c := &cobra.Command{
		Use:  "advise AUDIT-LOG...",
		Args: cobra.MinimumNArgs(1),
		RunE: flags.run,
	}
	fl := c.Flags()
	fl.StringVar(&flags.rbac, "rbac", "", "the present roles and bindings, as kubectl get -o yaml writes them")
	fl.IntVar(&flags.options.MaxNames, "max-names", 0, "name at most this many objects in a rule; beyond it, the rule is for all objects of the resource (0: name every one)")
	fl.IntVar(&flags.options.MaxSeen, "max-seen", 0, "keep at most this many different impersonations in memory (default 1000000)")
	fl.BoolVar(&flags.verify, "verify", false, "try the RBAC on a local control plane")
	fl.IntVar(&flags.verifyLimit, "verify-limit", 2000, "with --verify, send at most this many of the impersonations that were seen, chosen by the seed (0: all)")
	fl.Uint64Var(&flags.seed, "seed", 1, "seed of that choice")
	fl.StringVar(&flags.kubernetes, "kubernetes", matrix.Newest(), "with --verify, the version to try on, of "+matrix.Known())
	return c
}

func (f *adviseFlags) run(c *cobra.Command, paths []string) error {
	if f.options.MaxNames < 0 || f.options.MaxSeen < 0 || f.verifyLimit < 0 {
		return errors.New("--max-names, --max-seen and --verify-limit are not negative")
	}
	var present []map[string]any
	if f.rbac != "" {
		_, objects, err := readGrants(f.rbac)
		if err != nil {
			return fmt.Errorf("--rbac: %w", err)
		}
		if present = objects; !slices.ContainsFunc(objects, func(o map[string]any) bool { return o["roleRef"] != nil }) {
			return fmt.Errorf("--rbac %s has no bindings (expected what kubectl get clusterroles,clusterrolebindings,roles,rolebindings -A -o yaml writes)", f.rbac)
		}
	}
	files, err := logFiles(paths, c.ErrOrStderr())
	if err != nil {
		return err
	}
	summary, stats, err := f.read(c.Context(), files, c.ErrOrStderr())
	if err != nil {
		return err
	}
	printStats(c.ErrOrStderr(), stats)
	switch {
	case stats.Events == 0:
		return errors.New("no audit event in the log; the lines above say what was there instead (expected audit.k8s.io/v1 Events, one JSON document a line, or EventLists)")
	case summary.Empty():
		return invalid(fmt.Errorf("nobody impersonates in %s: there is nothing to advise on (is the audit level of these requests at least Metadata?)", reports.Plural(int(stats.Events), "event")))
	}
	a := summary.Advice()
	manifests, err := advice.Manifests(advice.RBAC(a.Grants))
	if err != nil {
		return err
	}
	if err := printAdvice(c.OutOrStdout(), a, present, manifests); err != nil {
		return invalid(err)
	}
	if f.verify {
		if err := f.try(c, summary.Seen(), manifests); err != nil {
			return err
		}
	}
	return failedIf(len(a.Kept) > 0)
}

// logFiles are the files of all paths.
func logFiles(paths []string, stderr io.Writer) (files []string, err error) {
	for _, p := range paths {
		found, leftOut, err := auditlog.Files(p)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
		for _, l := range leftOut {
			_, _ = fmt.Fprintf(stderr, "left out: %s (not named like an audit log)\n", l)
		}
	}
	return files, nil
}

// read reads all files into a summary.
func (f *adviseFlags) read(ctx context.Context, files []string, stderr io.Writer) (*advice.Summary, auditlog.Stats, error) {
	summary, err := advice.NewSummary(f.options)
	if err != nil {
		return nil, auditlog.Stats{}, err
	}
	show := newDisplay(stderr)
	defer show.end()
	r := &auditlog.Reader{Progress: showReading(show, files)}
	r.Each = func(e *auditv1.Event, again bool) error {
		err := summary.Add(e, again)
		if err == nil || errors.Is(err, advice.ErrTooMany) {
			return err
		}
		r.Spoilt(err.Error())
		return nil
	}
	for _, file := range files {
		err := r.ReadFile(ctx, file)
		switch {
		case errors.Is(err, advice.ErrTooMany):
			return nil, r.Stats(), invalid(fmt.Errorf("%w, at %s: --max-names 20 puts objects of one kind together, --max-seen raises the limit", advice.ErrTooMany, file))
		case ctx.Err() != nil:
			return nil, r.Stats(), invalid(errors.New("interrupted"))
		case err != nil:
			return nil, r.Stats(), err
		}
	}
	return summary, r.Stats(), nil
}

// try tries the manifests, on the model and on a control plane.
func (f *adviseFlags) try(c *cobra.Command, seen []advice.Seen, manifests []byte) error {
	cell, err := localCell(c, f.kubernetes, target.AskOn)
	if err != nil {
		return err
	}
	out, stderr := c.OutOrStdout(), c.ErrOrStderr()
	neighbours, without := advice.Neighbours(seen)
	seen = slices.DeleteFunc(seen, func(s advice.Seen) bool { return s.Mode == "" })
	all := len(seen)
	if f.verifyLimit > 0 && all > f.verifyLimit {
		random := rand.New(rand.NewPCG(f.seed, 0))
		random.Shuffle(all, func(i, j int) { seen[i], seen[j] = seen[j], seen[i] })
		seen = seen[:f.verifyLimit]
		random.Shuffle(len(neighbours), func(i, j int) { neighbours[i], neighbours[j] = neighbours[j], neighbours[i] })
		neighbours = neighbours[:min(len(neighbours), 4*f.verifyLimit)]
	}
	result, err := verification.Run(c.Context(), verification.Options{
		Target: cell, Manifests: manifests, Seen: seen, Neighbours: neighbours,
		Progress: func(line string) { _, _ = fmt.Fprintln(stderr, line) },
	})
	if err != nil {
		return invalid(err)
	}
	_, _ = fmt.Fprintf(out, "# Tried on kube-apiserver %s: %d of %d that were seen were sent, %d allowed; %d neighbours, %d denied%s.\n",
		result.Version, len(seen), all, result.Allowed, len(neighbours), result.Denied, withoutNeighbour(without))
	for i, w := range result.Wrong {
		if i == 10 {
			_, _ = fmt.Fprintf(out, "# … and %d more\n", len(result.Wrong)-i)
			break
		}
		_, _ = fmt.Fprintf(out, "# WRONG: %s\n", w)
	}
	return failedIf(len(result.Wrong) > 0)
}

// showReading shows how far the reading of files is.
func showReading(show *display, files []string) func(auditlog.Stats) {
	begun, size := time.Now(), int64(0)
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			size += info.Size()
		}
	}
	return func(s auditlog.Stats) {
		if show.due() {
			show.status(fmt.Sprintf("%.0f MB (%.0f MB on disk), %.0f MB/s, %d events, %d that impersonate",
				float64(s.Bytes)/1e6, float64(size)/1e6, float64(s.Bytes)/1e6/time.Since(begun).Seconds(), s.Events, s.Impersonated))
		}
	}
}

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
