package conformance

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/authzconf/authzconf/reports/record"
)

const (
	// logsFolder is where the logs of clusters are in a report's folder, below it one folder for each cell.
	logsFolder = "logs"
	// maxLog is how much of a log is kept, in bytes: its end.
	maxLog = 1 << 20
	// logsTimeout is how long the export of logs may take.
	logsTimeout = time.Minute
)

// keepLogs records the logs of a cluster with nodes, without what looks like a credential, if something failed there.
func (c *Cell) keepLogs(ctx context.Context) {
	if !c.hasFailed.Load() || !c.Target.Capabilities().Nodes {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logsTimeout)
	defer cancel()
	if err := c.exportLogs(ctx); err != nil {
		c.output.say("%s: not all of its logs are in the report: %v", c.Name(), err)
	}
}

// exportLogs records what logs there are, also where some could not be collected: a node image may lack a program.
func (c *Cell) exportLogs(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "authzconf-logs-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	exportErr := c.Target.ExportLogs(ctx, dir)
	return errors.Join(exportErr, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return c.output.Log.AppendFile(nameLog(c.Name(), relative), redactLog(data))
	}))
}

// nameLog returns the name of a log in the report's folder, where file names have no colons and backslashes.
func nameLog(cell, path string) string {
	return logsFolder + "/" + cell + "/" + strings.NewReplacer(":", "_", "\\", "_").Replace(filepath.ToSlash(path))
}

// redactLog returns the end of a log without what looks like a credential. One may be cut in two where the end begins, so it
// begins with a whole line.
func redactLog(data []byte) []byte {
	text := record.Redact(string(data))
	if len(text) > maxLog {
		text = text[len(text)-maxLog:]
		_, text, _ = strings.Cut(text, "\n")
	}
	return []byte(text)
}
