package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/storm"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/load"
	loadrun "github.com/authzconf/authzconf/reports/load/run"
	"github.com/authzconf/authzconf/scenarios"
)

// printable leaves out what would steer a terminal, or end the comment that a name stands in: names come from files.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return '�'
		}
		return r
	}, s)
}

func newLoadVerify() *cobra.Command {
	return commandWith("verify FOLDER", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error { return verifyLoad(c, args[0]) })
}

func verifyLoad(c *cobra.Command, path string) error {
	result, differences, err := load.Verify(path, suiteVersion(), declaredBy)
	if err != nil {
		return err
	}
	for i, d := range differences {
		differences[i] = printable(d)
	}
	if len(differences) > 0 {
		return differs(c, differences, "the report does not follow from its run")
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "verified: judged again, the outcome is %s\n", result.Outcome)
	return err
}

// declaredBy are the thresholds and comparisons that the text of a run's profile has, with the flags of its command. The
// text of a built-in profile has to be ours, and the servers of the version that was asked for.
func declaredBy(r *loadrun.Run) (t load.Thresholds, compared []string, err error) {
	var f loadFlags
	c := &cobra.Command{FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}}
	f.add(c)
	if err := c.ParseFlags(r.Command[slices.Index(r.Command, "load")+1:]); err != nil {
		return t, nil, err
	}
	for _, name := range []string{f.profile, r.Profile} { // what was asked for, and what the report calls it
		if !slices.Contains(profile.Names(), name) {
			continue
		}
		if _, text, err := profile.Load(name); err != nil || string(text) != r.ProfileYAML {
			return t, nil, errors.Join(err, fmt.Errorf("the text of the built-in profile %s is not that of this authzconf: one of your own needs another name", name))
		}
	}
	p, err := profile.Parse(r.Profile+".yaml", []byte(r.ProfileYAML))
	if err != nil {
		return t, nil, err
	}
	if p, err = f.adjusted(c, p); err != nil {
		return t, nil, err
	}
	if p.Agents() != r.Agents || p.Pairs != r.Pairs || p.Starts != r.Starts {
		return t, nil, fmt.Errorf("the run has %d agents, %d pairs and %d starts, its profile and command %d, %d and %d", r.Agents, r.Pairs, r.Starts, p.Agents(), p.Pairs, p.Starts)
	}
	release, err := local.ParseRelease(f.kubernetes)
	for _, s := range r.Servers {
		if err == nil && f.provider != target.Existing && !strings.HasPrefix(s.GitVersion, "v"+release.Minor+".") {
			err = fmt.Errorf("%s is Kubernetes %s, and its command asks for %s", s.Name, s.GitVersion, release.Minor)
		}
	}
	return storm.Thresholds(p), scenarios.Each(p.Comparisons, func(c profile.Comparison) string { return c.Name }), err
}

func newLoadCost() *cobra.Command {
	var reportDir string
	c := commandWith("cost RUN RUN...", cobra.MinimumNArgs(1), func(c *cobra.Command, args []string) error {
		var runs []load.Saved
		for _, path := range args {
			s, err := load.LoadSaved(path)
			if err != nil {
				return err
			}
			runs = append(runs, s)
		}
		cost := load.NewCost(runs...)
		if reportDir == "" {
			text, err := cost.Markdown()
			if err == nil {
				_, err = c.OutOrStdout().Write(text)
			}
			return err
		}
		if err := cost.Write(reportDir); err != nil {
			return err
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "report: %s\n", filepath.Join(reportDir, "README.md"))
		return err
	})
	c.Flags().StringVar(&reportDir, "report-dir", "", "folder for README.md and the curves")
	return c
}

func newLoadResults() *cobra.Command {
	var reportDir string
	c := commandWith("results RUNS", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		if reportDir == "" {
			return errors.New("--report-dir is missing: name the folder for the pages")
		}
		if err := load.Results(args[0], reportDir); err != nil {
			return err
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "report: %s\n", filepath.Join(reportDir, "README.md"))
		return err
	})
	c.Flags().StringVar(&reportDir, "report-dir", "", "folder for README.md and the parts")
	return c
}

func newLoadExport() *cobra.Command {
	var address, tokenFile string
	c := commandWith("export FOLDER --remote-write URL", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		if address == "" {
			return errors.New("--remote-write is missing: name where to, such as http://localhost:9090/api/v1/write")
		}
		to, err := load.ParseReceiver(address)
		if err != nil {
			return fmt.Errorf("--remote-write: %w", err)
		}
		var token []byte
		if tokenFile != "" {
			if token, err = os.ReadFile(tokenFile); err != nil {
				return fmt.Errorf("--bearer-token-file: %w", err)
			}
		}
		r, err := load.Load(args[0])
		if err != nil {
			return err
		}
		streams, err := load.Streams(&r)
		if err != nil {
			return err
		}
		if err := (&load.Receiver{URL: to, Token: strings.TrimSpace(string(token))}).Push(c.Context(), streams); err != nil {
			return invalid(err)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "sent: %d series of %s to %s\n", len(streams), reports.Plural(len(r.Blocks), "block"), to.Redacted())
		return err
	})
	c.Flags().StringVar(&address, "remote-write", "", "URL of the receiver; a user and password may be in it")
	c.Flags().StringVar(&tokenFile, "bearer-token-file", "", "file with a token for the receiver")
	return c
}
