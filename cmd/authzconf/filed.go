package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
)

// filedFlags say where a report goes, and by whom it is signed.
type filedFlags struct {
	reportDir, signKey string
	key                *certify.Key
}

func (f *filedFlags) register(fl *pflag.FlagSet, what string) {
	fl.StringVar(&f.reportDir, "report-dir", "", "folder for "+what)
	fl.StringVar(&f.signKey, "sign-key", "", "sign the report with this private key, as certify keygen makes it")
}

// readKey reads the key of --sign-key, if there is one.
func (f *filedFlags) readKey() (err error) {
	switch {
	case f.signKey == "":
		return nil
	case f.reportDir == "":
		return errors.New("--sign-key needs --report-dir: a report is what is signed")
	}
	f.key, err = privateKey("--sign-key", f.signKey)
	return err
}

// ready says before a run whether its report can be written and signed.
func (f *filedFlags) ready(kind *filing.Kind) error {
	if err := f.readKey(); err != nil {
		return err
	}
	return writable(kind, f.reportDir)
}

// sign signs a report that was written, or takes the signature of an earlier one away.
func (f *filedFlags) sign(marker string, outcome any) error {
	if f.key == nil {
		return reports.Sign(f.reportDir, marker, nil)
	}
	return reports.Sign(f.reportDir, marker, func(name string, report []byte) ([]byte, error) {
		return certify.SignReport(f.key, name, report, outcome)
	})
}

// file writes a report with its evidence, if there is a folder for it.
func (f *filedFlags) file(kind *filing.Kind, r reports.Recorded, p *reports.Pieces) error {
	return written(f.reportDir, func(dir string) error {
		made := r.Made()
		made.SuiteVersion, made.Command = suiteVersion(), called
		if err := reports.WriteRecorded(dir, kind, r, p); err != nil {
			return err
		}
		return f.sign(kind.Marker, made.Outcome)
	})
}

// reread reads the flags of a recorded command line as the command does that has these words; nothing is started.
func reread(c *cobra.Command, command []string, words ...string) error {
	if len(command) <= len(words) || !slices.Equal(command[1:len(words)+1], words) {
		return fmt.Errorf("the command line %q is not one of authzconf %s", command, strings.Join(words, " "))
	}
	err := c.ParseFlags(command[len(words)+1:])
	if err == nil {
		err = errors.Join(c.ValidateArgs(c.Flags().Args()), c.ValidateFlagGroups())
	}
	if err != nil {
		return fmt.Errorf("the command line %q: %w", command, err)
	}
	return nil
}

// reseed takes the seed of a report whose command line gives none.
func reseed(c *cobra.Command, seed *int64, of int64) {
	if !c.Flags().Changed("seed") {
		*seed = of
	}
}

// recheck verifies reports of a kind that follow from their evidence by again.
func recheck[R reports.Recorded](kind *filing.Kind, empty func() R, again func(r R, p *reports.Pieces, flags *verifyFlags) (R, error)) reportKind {
	return reportKind{kind, func(c *cobra.Command, path string, flags *verifyFlags) error {
		keys, err := publicKeys(flags.keys)
		if err != nil {
			return err
		}
		r := empty()
		v, err := reports.Recheck(path, kind, r, func(r R, p *reports.Pieces) (R, error) { return again(r, p, flags) })
		if err != nil {
			return err
		}
		if made := r.Made().SuiteVersion; made != suiteVersion() {
			v.Notes = append(v.Notes, fmt.Sprintf("it was made by authzconf %s, and this is %s", made, suiteVersion()))
		}
		return conclude(c, v, keys, kind.Marker, r.Made().Outcome, fmt.Sprintf("judged again from its evidence, the outcome is %s", r.Made().Outcome))
	}}
}

// conclude prints what became of a verification, and of the signature.
func conclude(c *cobra.Command, v *reports.Verification, keys []*certify.Key, marker string, outcome any, verified string) error {
	for _, note := range v.Notes {
		_, _ = fmt.Fprintf(c.OutOrStdout(), "note: %s\n", note)
	}
	files := certify.Bundle{marker: v.Marker, reports.SignatureFile: v.Signature}
	signed, wrong := certify.ReportSignedBy(keys, files, reports.SignatureFile, outcome)
	what := "the report does not follow from its evidence"
	if v.OK() {
		what = "the report is not signed as demanded"
	}
	if v.Differences = append(v.Differences, wrong...); !v.OK() {
		return differs(c, v.Differences, what)
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "verified: %s\nsignature: %s\n", verified, signed)
	return err
}
