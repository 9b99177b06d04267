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

type filedFlags struct {
	reportDir, signKey string
	key                *certify.Key
}

func (f *filedFlags) register(fl *pflag.FlagSet, what string) {
	fl.StringVar(&f.reportDir, "report-dir", "", "folder for "+what)
	fl.StringVar(&f.signKey, "sign-key", "", "sign the report with this private key, as certify keygen makes it")
}

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

func (f *filedFlags) ready(kind *filing.Kind) error {
	if err := f.readKey(); err != nil {
		return err
	}
	return writable(kind, f.reportDir)
}

func (f *filedFlags) sign(marker string, outcome any) error {
	if f.key == nil {
		return reports.Sign(f.reportDir, marker, nil)
	}
	return reports.Sign(f.reportDir, marker, func(name string, report []byte) ([]byte, error) {
		return certify.SignReport(f.key, name, report, outcome)
	})
}

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
func reread(c *cobra.Command, command, words []string) error {
	if len(command) <= len(words) || !slices.Equal(command[1:len(words)+1], words) {
		return fmt.Errorf("the command line %q is not one of authzconf %s", command, strings.Join(words, " "))
	}
	err := c.ParseFlags(command[len(words)+1:])
	if err == nil {
		err = c.ValidateArgs(c.Flags().Args())
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

// recheck verifies reports of a kind, which the command of some words writes, and which follow from their evidence by again.
func recheck[F, T any, R interface {
	*T
	reports.Recorded
}](kind *filing.Kind, words string, command func(*F) *cobra.Command, again func(f *F, c *cobra.Command, r R, p *reports.Pieces, flags *verifyFlags) (R, error)) reportKind {
	return reportKind{kind, func(c *cobra.Command, path string, flags *verifyFlags) error {
		keys, err := publicKeys(flags.keys)
		if err != nil {
			return err
		}
		r := R(new(T))
		v, err := reports.Recheck(path, kind, r, func(r R, p *reports.Pieces) (R, error) {
			f := new(F)
			read := command(f)
			if err := reread(read, r.Made().Command, strings.Fields(words)); err != nil {
				return nil, err
			}
			return again(f, read, r, p, flags)
		})
		if err != nil {
			return err
		}
		if made := r.Made().SuiteVersion; made != suiteVersion() {
			v.Notes = append(v.Notes, fmt.Sprintf("it was made by authzconf %s, and this is %s", made, suiteVersion()))
		}
		return conclude(c, v, keys, kind.Marker, r.Made().Outcome, fmt.Sprintf("judged again from its evidence, the outcome is %s", r.Made().Outcome))
	}}
}

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
	if len(v.Unjudged) > 0 {
		return invalid(fmt.Errorf("the authzconf that made it has to verify it: %s", strings.Join(v.Unjudged, "; ")))
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "verified: %s\nsignature: %s\n", verified, signed)
	return err
}
