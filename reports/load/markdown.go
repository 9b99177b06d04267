package load

import (
	"fmt"
	"strings"
	"time"

	"github.com/authzconf/authzconf/reports/load/run"
)

// md escapes what Markdown or HTML would take for markup: names come from files.
func md(s string) string {
	return strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", ">", "&gt;", "&", "&amp;", "*", "\\*", "_", "\\_", "`", "\\`",
		"[", "\\[", "]", "\\]", "#", "\\#", "~", "\\~", "\n", " ", "\r", " ").Replace(s)
}

// Markdown is summary.md: what fits into the comment of a CI system.
func Markdown(r *run.Run, result *Result) []byte {
	b := &strings.Builder{}
	fmt.Fprintf(b, "# Load: %s\n\n", result.Outcome)
	fmt.Fprintf(b, "Profile %s, %s, seed %d, authzconf %s, %d CPUs.\n\n", md(r.Profile), counted(len(r.Blocks), "block"), r.Seed, md(r.Tool), r.Machine.CPUs)
	writeList(b, "Why", result.Reasons)
	writeList(b, "Notes", result.Notes)
	for _, s := range r.Servers {
		fmt.Fprintf(b, "- server %s: %s, gate %s, webhook delay %s\n", md(s.Name), md(s.GitVersion), md(s.Gate), time.Duration(s.WebhookDelay))
	}
	if len(r.Servers) > 0 {
		b.WriteString("\n")
	}
	markdownVariants(b, result)
	markdownComparisons(b, result.Comparisons)
	markdownLimits(b, result)
	b.WriteString("Latencies are from the intended send. `run.json` has everything that was measured; `report.json` follows from it alone.\n")
	return []byte(b.String())
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func writeList(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "%s:\n\n", title)
	for _, l := range lines {
		fmt.Fprintf(b, "- %s\n", md(l))
	}
	b.WriteString("\n")
}

func markdownVariants(b *strings.Builder, result *Result) {
	if len(result.Variants) == 0 {
		return
	}
	b.WriteString("## Variants\n\n| variant | agents | requests/s | errors | reviews per request | predicted (warm to cold) | p50 | p99 | server CPU per request |\n")
	b.WriteString("|---|--:|--:|--:|---|---|---|---|--:|\n")
	for _, a := range result.Variants {
		fmt.Fprintf(b, "| %s | %d | %.1f | %d of %d | %s | %s | %s | %s | %.2f ms |\n", md(a.Name), a.Agents, a.Rate, a.Errors, a.Done,
			md(strings.TrimSuffix(reviewsText(a.Reviews), " reviews per request")), md(predictedText(a.Reviews)), md(boundText(a.P50)), md(boundText(a.P99)), a.ServerCPU)
	}
	b.WriteString("\n### Reviews per request by mode, verb and decision\n\n| variant | mode | verb | decision | per request |\n|---|---|---|---|--:|\n")
	for _, a := range result.Variants {
		for _, c := range a.Reviews.Checks {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %.3f |\n", md(a.Name), md(c.Mode), md(c.Verb), md(c.Decision), c.PerRequest)
		}
	}
	b.WriteString("\n")
}

func predictedText(r ReviewRate) string {
	if r.Predicted == nil {
		return r.Verdict
	}
	return fmt.Sprintf("%g to %g: %s", r.Predicted.Warm, r.Predicted.Cold, r.Verdict)
}

func markdownComparisons(b *strings.Builder, comparisons []Comparison) {
	if len(comparisons) == 0 {
		return
	}
	b.WriteString("## Comparisons\n\nHow much longer B takes than A, with 95 % intervals over pairs; p by sign-flips, adjusted (Holm).\n\n")
	b.WriteString("| comparison | A | B | pairs | | change | difference | p | within the margin |\n|---|---|---|--:|---|---|---|--:|---|\n")
	for _, c := range comparisons {
		name := c.Name
		if c.AA {
			name += " (A/A)"
		}
		for _, q := range []struct {
			name string
			Effect
		}{{"p50", c.P50}, {"p99", c.P99}} {
			fmt.Fprintf(b, "| %s | %s | %s | %d | %s | %s | %s | %s | %s |\n", md(name), md(c.A), md(c.B), c.Pairs, q.name,
				md(changeText(q.Effect)), md(millisecondsText(q.Effect)), md(pText(q.Effect)), md(marginText(q.Effect)))
		}
	}
	b.WriteString("\n")
}

// marginText is "equivalent: [-0.5, +1.2 %] against 5 %".
func marginText(e Effect) string {
	if e.Verdict == "" {
		return "not asked"
	}
	if !e.Measured {
		return string(e.Verdict)
	}
	return fmt.Sprintf("%s: 90 %% interval %s, margin %g %%", e.Verdict, bracket(e.Ninety), 100*e.Margin)
}

func markdownLimits(b *strings.Builder, result *Result) {
	if len(result.Limits) > 0 {
		b.WriteString("## Limits\n\n| of | limit | | |\n|---|---|---|---|\n")
		for _, l := range result.Limits {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", md(l.Of), md(l.Name), l.State, md(l.Detail))
		}
		b.WriteString("\n")
	}
	if len(result.Checks) > 0 {
		b.WriteString("## Was the measuring sound?\n\n| check | | |\n|---|---|---|\n")
		for _, c := range result.Checks {
			fmt.Fprintf(b, "| %s | %s | %s |\n", md(c.Name), c.State, md(c.Detail))
		}
		b.WriteString("\n")
	}
}

// ComparisonMarkdown is the result of Compare as Markdown.
func ComparisonMarkdown(result *Result) []byte {
	b := &strings.Builder{}
	fmt.Fprintf(b, "# Two load runs: %s\n\n", result.Outcome)
	writeList(b, "Why", result.Reasons)
	writeList(b, "Notes", result.Notes)
	markdownComparisons(b, result.Comparisons)
	markdownLimits(b, result)
	return []byte(b.String())
}
