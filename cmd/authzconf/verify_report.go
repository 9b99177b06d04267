package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/suites/labels"
)

// planAgain reads a recorded command line as the command does that it starts. Nothing else happens.
func planAgain(words []string) (*product.CommandLine, []string, error) {
	p, rest := findProduct(words)
	if p == nil {
		return nil, nil, fmt.Errorf("no product is started by %q", strings.Join(words, " "))
	}
	flags := pflag.NewFlagSet(p.Command, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	line := product.NewCommandLine(*p, flags, labels.Filter)
	if err := flags.Parse(rest); err != nil {
		return nil, nil, err
	}
	return line, flags.Args(), nil
}

// findProduct returns the product that the first words of a command line start, and the remaining words. If several do,
// such as certify and certify safe, it is the one with more words. It returns nil if there is none.
func findProduct(words []string) (p *product.Product, rest []string) {
	length := 0
	for _, entry := range productTable {
		command := strings.Fields(entry.product.Command)
		isNamed := len(words) >= len(command) && slices.Equal(words[:len(command)], command)
		if isNamed && len(command) > length {
			length, p, rest = len(command), &entry.product, words[len(command):]
		}
	}
	return p, rest
}

// planBy returns planAgain with the scenarios of a folder, or the built-in ones if it is empty.
func planBy(scenarios string) product.Planner {
	return func(words []string) (*product.CommandLine, []string, error) {
		line, args, err := planAgain(words)
		if err == nil {
			line.Scenarios = scenarios
		}
		return line, args, err
	}
}

// verifyReport verifies the report of any product, and says whose signature it has. scenarios is the folder with the
// scenarios to judge by, or "" for the built-in ones. challenge is the file of the challenge that the report has to
// answer, or "" if there is none.
func verifyReport(c *cobra.Command, dir, scenarios string, keys []*record.Key, challenge string) error {
	read, closeFolder, err := reports.ReadFolder(dir)
	if err != nil {
		return fmt.Errorf("cannot open the report folder: %w", err)
	}
	defer closeFolder()
	v, err := product.Verify(read, planBy(scenarios), c.ErrOrStderr())
	if err != nil {
		return err
	}
	if v.Report.SuiteVersion != suiteVersion() {
		_, _ = fmt.Fprintf(c.OutOrStdout(), "note: it was made by authzconf %s, and this is %s\n", v.Report.SuiteVersion, suiteVersion())
	}
	signature, err := read(reports.SignatureFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	signer, wrong := record.CheckReport(keys, signature, reports.ReportFile, v.Marker, v.Report.Outcome)
	maker, unbound, err := attest(v, keys, challenge, signature)
	if err != nil {
		return err
	}
	wrong = append(wrong, unbound...)
	what := "the report does not follow from its evidence"
	if len(v.Differences) == 0 {
		what = "the report is not signed as demanded"
	}
	if all := slices.Concat(v.Differences, wrong); len(all) > 0 {
		return differs(c, all, what)
	}
	_, err = fmt.Fprintf(
		c.OutOrStdout(),
		"%soutcome: %s\nverified: %s recomputed from the evidence, all the same\nsignature: %s\nmade: %s\n",
		describePrograms(v.Report),
		v.Report.Outcome.Result,
		reports.Plural(v.Cases, "verdict"),
		signer,
		maker,
	)
	return err
}

// describePrograms returns a line for each program of the report that was not compared with a published one. Whoever
// made the report may have built anything.
func describePrograms(r *reports.Report) (lines string) {
	said := map[string]bool{}
	for _, g := range r.Groups {
		if g.Witness == nil {
			continue
		}
		for _, p := range g.Witness.Programs {
			line := fmt.Sprintf("note: %s (%s, SHA-256 %.12s): compared with no published program\n", p.Title(), p.Provenance(), p.SHA256)
			if !p.IsPublished() && !said[line] {
				said[line] = true
				lines += line
			}
		}
	}
	return lines
}

// selfDeclared is what is known about the origin of a report that answers no challenge: only its maker's word.
const selfDeclared = "self-declared"

// attest returns who made the report, as far as it shows that. Reports of some products can answer a challenge.
// challenge names the file of the challenge that the report has to answer, if there is one. Each difference is a line.
func attest(
	v *product.Verification,
	keys []*record.Key,
	challenge string,
	signature []byte,
) (line string, differences []string, err error) {
	attester, canAttest := v.Plan.(product.Attester)
	if !canAttest && challenge != "" && v.Plan != nil {
		return "", nil, fmt.Errorf("--challenge has no effect on a report of %s: it answers none", v.Report.Product)
	}
	if !canAttest {
		return selfDeclared, nil, nil
	}
	if challenge != "" {
		raw, err := filing.Input(challenge)
		if err != nil {
			return "", nil, fmt.Errorf("--challenge: %w", err)
		}
		if !attester.Answers(raw) {
			differences = append(differences, "challenge: the report does not answer that of "+challenge)
		}
	}
	maker, unbound := attester.Attest(keys, func(key *record.Key) bool {
		_, wrong := record.CheckReport([]*record.Key{key}, signature, reports.ReportFile, v.Marker, v.Report.Outcome)
		return len(wrong) == 0
	})
	return maker, append(differences, unbound...), nil
}
