package product

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/history"
	"github.com/authzconf/authzconf/reports/pages"
	"github.com/authzconf/authzconf/reports/record"
)

// Output is where a report goes, if the user wants one.
type Output struct {
	folder  string
	history string
	key     *record.Key
}

// OpenOutput finds out before a run whether its report can be written and signed. Every error is for the user to mend.
func OpenOutput(o Options) (out Output, err error) {
	out.folder, out.history = o.ReportDir, o.History
	if o.SignKey != "" && out.folder == "" {
		return out, errors.New("--sign-key needs --report-dir: a report is what is signed")
	}
	if o.SignKey != "" {
		if out.key, err = record.LoadPrivateKey(o.SignKey); err != nil {
			return out, fmt.Errorf("--sign-key: %w", err)
		}
	}
	if out.history != "" {
		if err := history.CheckAppendable(out.history); err != nil {
			return out, fmt.Errorf("--history: %w", err)
		}
	}
	if out.folder == "" {
		return out, nil
	}
	return out, reports.JudgedFolder.CheckWritable(out.folder)
}

// Save writes the report with its record and its pages, and signs it, and appends the results to the history, if the user
// wants that.
func (o Output) Save(result *RunResult) error {
	return errors.Join(o.saveReport(result), o.appendHistory(result))
}

// appendHistory appends the results to the history. Those of an interrupted run are left out: it was not the subject that
// kept its cases from passing.
func (o Output) appendHistory(result *RunResult) error {
	if o.history == "" || result.Interrupted {
		return nil
	}
	return history.Append(o.history, result.Report)
}

func (o Output) saveReport(result *RunResult) error {
	if o.folder == "" {
		return nil
	}
	rendered, err := pages.Render(result.Report)
	if err != nil {
		return err
	}
	return reports.Save(o.folder, result.Report, result.Log, rendered, o.signer(result.Report))
}

// signer returns the function that signs a report, nil without a key.
func (o Output) signer(r *reports.Report) func(name string, report []byte) ([]byte, error) {
	if o.key == nil {
		return nil
	}
	return func(name string, report []byte) ([]byte, error) {
		return record.SignReport(o.key, name, report, r.Outcome)
	}
}

// Announce says where the report is, and how to check it. The folder is named in full, for a suite of Ginkgo runs in its own.
func (o Output) Announce(w io.Writer) {
	if o.folder == "" {
		return
	}
	folder, err := filepath.Abs(o.folder)
	if err != nil {
		folder = o.folder
	}
	_, _ = fmt.Fprintf(w, "report: %s\ncheck it: authzconf verify %s\n", filepath.Join(folder, reports.HTMLFile), folder)
}

// ModuleVersion returns the version of authzconf's module in the program that runs, empty if it is not known.
func ModuleVersion() string {
	info, known := debug.ReadBuildInfo()
	if !known {
		return ""
	}
	for _, module := range append(info.Deps, &info.Main) {
		if module.Path == "github.com/authzconf/authzconf" {
			return module.Version
		}
	}
	return ""
}
