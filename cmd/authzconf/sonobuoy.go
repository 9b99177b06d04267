package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/reports"
)

// These are the files of a Sonobuoy plugin. Sonobuoy's worker waits for the done file, which names the results
// (https://sonobuoy.io/docs/main/plugins/#writing-your-own-plugin). With result-format junit it reads junit.xml in
// them.
const (
	sonobuoyResults = "authzconf.tar.gz"
	sonobuoyDone    = "done"
)

func newSonobuoy() *cobra.Command {
	var results string
	c := commandWith("sonobuoy COMMAND...", func(c *cobra.Command, args []string) error {
		folder := filepath.Join(results, "report")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		code := run(append(args, "--report-dir", folder), c.OutOrStdout(), c.ErrOrStderr())
		if err := handOver(results, folder, code); err != nil {
			return invalid(err)
		}
		return exitWith(code)
	})
	c.Flags().
		StringVar(&results, "results", "/tmp/sonobuoy/results", "folder for the report, for a tar of it and, at the end in any case, for a done file")
	c.Flags().SetInterspersed(false)
	return c
}

// handOver packs a report and announces it. Without a report, the results hold the failure instead.
func handOver(results, folder string, code int) error {
	if _, err := os.Stat(filepath.Join(folder, reports.ReportFile)); err != nil {
		text, err := xml.Marshal(fmt.Sprintf("exit code %d, and no report: see the log of the plugin", code))
		if err != nil {
			return err
		}
		failure := fmt.Appendf(
			nil,
			`<testsuites><testsuite name="authzconf" tests="1" errors="1"><testcase name="report"><error>%s</error></testcase></testsuite></testsuites>`,
			text,
		)
		if err := os.WriteFile(filepath.Join(folder, reports.JUnitFile), failure, 0o644); err != nil {
			return err
		}
	}
	tarball, err := filepath.Abs(filepath.Join(results, sonobuoyResults))
	if err != nil {
		return err
	}
	if err := packFolder(tarball, folder); err != nil {
		return err
	}
	// The worker may read the done file as soon as it exists.
	next := filepath.Join(results, ".done")
	if err := os.WriteFile(next, []byte(tarball), 0o644); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(results, sonobuoyDone))
}

// packFolder writes a folder as a compressed tar.
func packFolder(file, folder string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	t := tar.NewWriter(z)
	return errors.Join(t.AddFS(os.DirFS(folder)), t.Close(), z.Close(), f.Close())
}
