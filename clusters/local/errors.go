package local

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/authzconf/authzconf/internal/usage"
)

// ProcessError means that an etcd or a kube-apiserver ended by itself, could not be started, or did not become ready in
// time. The environment or the program broke, and not the request.
type ProcessError struct {
	Process string // "etcd" or "kube-apiserver"
	PID     int    // the process's ID; 0 if it could not be started
	// State says what happened, such as "exit status 1", "signal: killed" or "not ready after 1m0s".
	State string
	// Reason is the program's own message from its log. It is empty if none stands out.
	Reason string
	// LogFile is the file with its whole log. It is gone once the run's folder is removed.
	LogFile string
	// LogTail are the last lines of the log, beginning with the oldest.
	LogTail []string
	Err     error // the cause, such as a context's error
}

// Error names the process, what happened and the program's own reason, followed by its last log lines.
func (e *ProcessError) Error() string {
	var b strings.Builder
	b.WriteString(e.Process)
	if e.PID != 0 {
		fmt.Fprintf(&b, " (pid %d)", e.PID)
	}
	fmt.Fprintf(&b, ": %s", e.State)
	if e.Reason != "" {
		fmt.Fprintf(&b, ": %s", e.Reason)
	}
	if len(e.LogTail) == 0 {
		b.WriteString("; it logged nothing")
		return b.String()
	}
	fmt.Fprintf(&b, "\nlast %d log lines:", len(e.LogTail))
	for _, line := range e.LogTail {
		b.WriteString("\n  " + line)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *ProcessError) Unwrap() error { return e.Err }

// folderError explains why a folder that this package needs cannot be used. variable is the environment variable that
// moves it.
func folderError(what, dir, variable string, err error) error {
	problem := fmt.Sprintf("cannot write the %s %s: %v", what, dir, rootCause(err))
	hint := fmt.Sprintf("make it writable, or set %s to a folder that is", variable)
	if isDiskFull(err) {
		hint = fmt.Sprintf("free some space, or set %s to a folder on a disk that has some", variable)
	}
	return &usage.Error{Problem: problem, Hint: hint, Err: err}
}

// rootCause returns the cause of a file error without the path and operation, which the message already contains.
func rootCause(err error) error {
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

const (
	errorLogLines  = 20
	reasonLogLines = 200 // how many lines are searched for the program's own message
	// maxTailBytes limits how much is read of a log that may have grown large.
	maxTailBytes = 256 << 10
	// maxLineBytes limits a line that is shown, because kube-apiserver may log a whole object on one line.
	maxLineBytes = 500
)

// readTail returns the last n lines of a log from an offset on, each shortened to a readable length. A log that cannot
// be read has no lines, because it only explains another error.
func readTail(path string, from int64, n int) []string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	whole := true
	if info.Size()-from > maxTailBytes {
		from, whole = info.Size()-maxTailBytes, false
	}
	data, err := io.ReadAll(io.NewSectionReader(file, from, info.Size()-from))
	if err != nil {
		return nil
	}
	return lastLines(data, n, whole)
}

// lastLines returns the last n non-empty lines. Unless whole, the first line is a torn one.
func lastLines(data []byte, n int, whole bool) []string {
	lines := strings.Split(string(data), "\n")
	if !whole && len(lines) > 0 {
		lines = lines[1:]
	}
	var out []string
	for _, line := range lines {
		line = strings.TrimRight(line, "\r \t")
		if line == "" {
			continue
		}
		if len(line) > maxLineBytes {
			line = strings.ToValidUTF8(line[:maxLineBytes], "") + "…"
		}
		out = append(out, line)
	}
	return out[max(0, len(out)-n):]
}

var (
	// commandFailed matches klog's last message: err="quoted", or err=< with the text on indented lines.
	commandFailed = regexp.MustCompile(`"command failed" err=("(?:[^"\\]|\\.)*"|<$)`)
	klogFatal     = regexp.MustCompile(`^F\d{4} \S+ +\d+ \S+\] (.*)$`)
	goPanic       = regexp.MustCompile(`^(?:panic|fatal error): .*$`)
	etcdFatal     = regexp.MustCompile(`"level":"(?:fatal|panic)".*?"msg":("(?:[^"\\]|\\.)*")(?:.*?"error":("(?:[^"\\]|\\.)*"))?`)
)

// findReason returns the message with which a program says why it ends, searched from the end of its log, or "".
func findReason(lines []string) string {
	for i := len(lines) - 1; i >= 0; i-- {
		line := lines[i]
		if m := commandFailed.FindStringSubmatch(line); m != nil {
			if m[1] == "<" {
				return indentedText(lines[i+1:])
			}
			return unquote(m[1])
		}
		if text, ok := strings.CutPrefix(line, "Error: "); ok {
			return text
		}
		if m := klogFatal.FindStringSubmatch(line); m != nil {
			return m[1]
		}
		if goPanic.MatchString(line) {
			return line
		}
		if m := etcdFatal.FindStringSubmatch(line); m != nil {
			return strings.TrimSuffix(unquote(m[1])+": "+unquote(m[2]), ": ")
		}
	}
	return ""
}

func indentedText(lines []string) string {
	var out []string
	for _, line := range lines {
		if strings.TrimSpace(line) == ">" {
			break
		}
		out = append(out, strings.TrimSpace(line))
	}
	return strings.Join(out, " ")
}

func unquote(s string) string {
	if plain, err := strconv.Unquote(s); err == nil {
		return plain
	}
	return strings.Trim(s, `"`)
}

// lineWriter passes complete lines to a writer, each in one call. It goes on reading if that writer fails, so that the
// process which writes is not blocked.
type lineWriter struct {
	to io.Writer

	mu   sync.Mutex
	rest []byte
	err  error
}

// Write never fails; see [lineWriter.failure].
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	data := p
	for {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			w.rest = append(w.rest, data...)
			return len(p), nil
		}
		line := data[:end+1]
		if len(w.rest) > 0 {
			w.rest = append(w.rest, line...)
			line = w.rest
		}
		if w.err == nil {
			_, w.err = w.to.Write(line)
		}
		w.rest = w.rest[:0]
		data = data[end+1:]
	}
}

// failure returns the first error of the writer. Lines that followed it are lost.
func (w *lineWriter) failure() error { return guarded(&w.mu, &w.err) }
