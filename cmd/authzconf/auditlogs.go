package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/engine/auditlog"
	"github.com/authzconf/authzconf/reports"
)

// eventSink collects what a command needs of the audit events that impersonate.
type eventSink interface {
	// Add adds an event. isRepeated means that it is the second event of a request. If the event is wrong, the error says
	// how, and the event is left out; advice.ErrTooMany ends the reading.
	Add(e *auditv1.Event, isRepeated bool) error
	// Empty reports whether no event impersonated.
	Empty() bool
}

// readAuditLogs reads the audit logs in files and folders into a sink, and prints on standard error what they contain.
// It is an error if nobody impersonates in them. purpose is what the command needs them for.
func readAuditLogs(c *cobra.Command, paths []string, sink eventSink, purpose string) error {
	files, err := findAuditLogs(paths, c.ErrOrStderr())
	if err != nil {
		return err
	}
	stats, err := readLogFiles(c, files, sink)
	if err != nil {
		return err
	}
	if err := render(c.ErrOrStderr(), "audit log", stats); err != nil {
		return invalid(err)
	}
	switch {
	case stats.Events == 0:
		return errors.New("no audit event in the log; the lines above say what was there instead (expected audit.k8s.io/v1 Events, one JSON document a line, or EventLists)")
	case sink.Empty():
		return invalid(fmt.Errorf("nobody impersonates in %s: there is nothing to %s (is the audit level of these requests at least Metadata?)", reports.Plural(int(stats.Events), "event"), purpose))
	}
	return nil
}

// findAuditLogs returns the files that paths name, and the files below named folders whose names are those of audit
// logs.
func findAuditLogs(paths []string, stderr io.Writer) (files []string, err error) {
	for _, path := range paths {
		paths, leftOut, err := auditlog.Files(path)
		if err != nil {
			return nil, err
		}
		files = append(files, paths...)
		for _, file := range leftOut {
			_, _ = fmt.Fprintf(stderr, "left out: %s (not named like an audit log)\n", file)
		}
	}
	return files, nil
}

func readLogFiles(c *cobra.Command, files []string, sink eventSink) (auditlog.Stats, error) {
	show := newDisplay(c.ErrOrStderr())
	defer show.end()
	r := &auditlog.Reader{Progress: showReading(show, files)}
	r.Each = func(e *auditv1.Event, isRepeated bool) error {
		err := sink.Add(e, isRepeated)
		if err == nil || errors.Is(err, advice.ErrTooMany) {
			return err
		}
		r.Spoilt(err.Error())
		return nil
	}
	for _, file := range files {
		err := r.ReadFile(c.Context(), file)
		switch {
		case errors.Is(err, advice.ErrTooMany):
			return r.Stats(), invalid(fmt.Errorf("%w, at %s: --max-names 20 puts objects of one kind together, --max-seen raises the limit", advice.ErrTooMany, file))
		case c.Context().Err() != nil:
			return r.Stats(), invalid(interruption(c))
		case err != nil:
			return r.Stats(), err
		}
	}
	return r.Stats(), nil
}

// showReading returns a function that shows how far the reading of the files is.
func showReading(show *display, files []string) func(auditlog.Stats) {
	begun, size := time.Now(), int64(0)
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
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

// interruption returns the error of a command that was interrupted, or nil.
func interruption(c *cobra.Command) error {
	if c.Context().Err() == nil {
		return nil
	}
	return errors.New("interrupted")
}
