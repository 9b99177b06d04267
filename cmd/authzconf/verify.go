package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
)

func newVerify() *cobra.Command {
	var flags verifyFlags
	c := commandWith("verify FOLDER", func(c *cobra.Command, args []string) error { return verify(c, args[0], &flags) })
	c.Flags().StringVar(&flags.dir, "scenarios", "", "folder of scenario files to judge by instead of the built-in ones")
	c.Flags().StringArrayVar(&flags.keys, "key", nil, "a public key: one of those given must have signed the report")
	return c
}

// verifyFlags say by what a report is judged again.
type verifyFlags struct {
	selectionFlags
	keys []string
}

type reportKind struct {
	*filing.Kind
	// verify judges a report again.
	verify func(c *cobra.Command, path string, flags *verifyFlags) error
}

// reportKinds are all of them. Where two have the same marker file, its head tells them apart.
func reportKinds() []reportKind {
	return []reportKind{
		{certify.Direct(nil).Folder(), verifyCertification},
		{certification.Kind(nil).Folder(), verifyCertification},
	}
}

func verify(c *cobra.Command, path string, flags *verifyFlags) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		if flags.dir != "" {
			return errors.New("--scenarios has no effect on a bundle: its scenarios cannot be chosen")
		}
		return verifyCertification(c, path, flags)
	}
	if reports.JudgedFolder.In(path) {
		keys, err := publicKeys(flags.keys)
		if err != nil {
			return err
		}
		return verifyReport(c, path, flags.dir, keys)
	}
	kinds, err := kindsIn(path)
	if err == nil {
		_, err = folderOr(flags.dir, nil)
	}
	if err != nil {
		return err
	}
	if flags.dir != "" {
		return fmt.Errorf("--scenarios has no effect on a %s: its scenarios cannot be chosen", kinds[0].Name)
	}
	for _, k := range kinds {
		if err := k.verify(c, path, flags); err != nil {
			return err
		}
	}
	return nil
}

func kindsIn(path string) ([]reportKind, error) {
	root, err := filing.OpenFolder(path) // which also says that it is none
	if err != nil {
		return nil, fmt.Errorf("cannot open the report folder: %w", err)
	}
	_ = root.Close()
	markers := []string{reports.ReportFile}
	var marked, known []reportKind
	for _, k := range reportKinds() {
		markers = seq.AppendMissing(markers, k.Marker)
		if _, err := os.Stat(filepath.Join(path, k.Marker)); err == nil {
			marked = append(marked, k)
			if k.In(path) {
				known = append(known, k)
			}
		}
	}
	switch {
	case len(marked) == 0:
		return nil, fmt.Errorf("%s holds no complete report: it has none of %s", path, strings.Join(markers, ", "))
	case len(known) == 0:
		known = marked[:1] // which says what is wrong with the marker
	}
	return known, nil
}

func verifyCertification(c *cobra.Command, path string, flags *verifyFlags) error {
	return verifyBundle(c, path, verifyBundleOptions{keys: flags.keys})
}
