package main

import (
	"errors"
	"fmt"
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
