package deputy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/internal/usage"
)

// These are the sources of a log that is not a file: standard input, a command, or an API server that sends it.
const (
	fromStdin     = "-"
	commandSource = "command:"
	webhookSource = "webhook:"
)

// growingLog is a log that is read while it grows, from its end at the time of opening. A log that does not come from a
// file is collected in one.
type growingLog struct {
	source string
	// path is the path of a file that somebody else writes. from is the file's length when it was opened.
	path        string
	startOffset int64
	// collected is the file in which any other log is collected. It has no name, so that nothing of it remains.
	collected *os.File
	closers   []func() error

	mu     sync.Mutex
	broken error
}

// openGrowing opens a log for a flag: a file, -, command:COMMAND, or webhook:HOST:PORT, with ,CERT,KEY if the host is
// not loopback. The user can fix its errors.
func openGrowing(ctx context.Context, flag, source string) (l *growingLog, err error) {
	l = &growingLog{source: source, path: source}
	command, isCommand := strings.CutPrefix(source, commandSource)
	address, isWebhook := strings.CutPrefix(source, webhookSource)
	switch {
	case source == fromStdin:
		err = l.collect(func(into *os.File) error { return l.readStdin(into) })
	case isCommand:
		err = l.collect(func(into *os.File) error { return l.startCommand(command, into) })
	case isWebhook:
		err = l.collect(func(into *os.File) error { return l.listen(ctx, address, into) })
	default:
		err = l.openFile()
	}
	if err != nil {
		return nil, &usage.Error{Problem: fmt.Sprintf("--%s: %v", flag, errors.Join(err, l.close()))}
	}
	return l, nil
}

// openFile notes how long the file is now, because the log begins there.
func (l *growingLog) openFile() error {
	info, err := os.Stat(l.path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", l.path)
	}
	l.startOffset = info.Size()
	return nil
}

// collect creates the file in which a log is collected, and starts what writes to it.
func (l *growingLog) collect(start func(into *os.File) error) error {
	into, err := createUnnamed()
	if err != nil {
		return err
	}
	l.collected = into
	l.closers = append(l.closers, into.Close)
	return start(into)
}

// createUnnamed returns a temporary file without a name, which disappears with this process however that ends.
func createUnnamed() (*os.File, error) {
	f, err := os.CreateTemp("", "authzconf-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// close stops what writes, and removes what was collected.
func (l *growingLog) close() (err error) {
	for _, end := range slices.Backward(l.closers) {
		err = errors.Join(err, end())
	}
	return err
}

// fail records why the log does not go on. Only the first reason is kept.
func (l *growingLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
}

// failure returns why the log does not go on, or nil if it does.
func (l *growingLog) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// readStdin collects standard input. Nothing waits for its end, because a pipe may stay open as long as the writing
// program runs.
func (l *growingLog) readStdin(into *os.File) error {
	go func() {
		if _, err := io.Copy(into, os.Stdin); err != nil && !errors.Is(err, os.ErrClosed) {
			l.fail(err)
		}
	}()
	return nil
}

// startCommand collects the standard output of a command. The command ends when the log is closed.
func (l *growingLog) startCommand(command string, into *os.File) error {
	messages, err := createUnnamed()
	if err != nil {
		return err
	}
	l.closers = append(l.closers, messages.Close)
	cmd, ended, err := launch(command, into, messages)
	if err != nil {
		return err
	}
	ending := make(chan struct{})
	go func() {
		<-ended
		select {
		case <-ending:
		default:
			l.fail(fmt.Errorf("the command ended (%s): %q", cmd.ProcessState, lastOutput(messages)))
		}
	}()
	l.closers = append(l.closers, func() error {
		close(ending)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		return nil
	})
	return nil
}

// largestBatch is more than an API server sends at once: --audit-webhook-truncate-max-batch-size is 10 MiB by default.
const largestBatch = 64 << 20

// listen collects what the audit webhook backend of an API server sends. Without a certificate it listens only on
// loopback, because otherwise anybody on the network could write the log that decides.
func (l *growingLog) listen(ctx context.Context, address string, into *os.File) error {
	parts := strings.Split(address, ",")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", parts[0])
	if err != nil {
		return err
	}
	l.closers = append(l.closers, func() error { _ = listener.Close(); return nil })
	isLoopback := listener.Addr().(*net.TCPAddr).IP.IsLoopback()
	hasCertificate := len(parts) == 3
	switch {
	case len(parts) != 1 && !hasCertificate:
		return fmt.Errorf("%q: expected webhook:HOST:PORT or webhook:HOST:PORT,CERT,KEY", address)
	case !isLoopback && !hasCertificate:
		return fmt.Errorf("%s is not a loopback address: expected webhook:%s,CERT,KEY, two files in PEM", parts[0], parts[0])
	}
	server := &http.Server{Handler: &batchReceiver{into: into}, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		var err error
		if hasCertificate {
			err = server.ServeTLS(listener, parts[1], parts[2])
		} else {
			err = server.Serve(listener)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			l.fail(err)
		}
	}()
	l.closers = append(l.closers, server.Close)
	return nil
}

// batchReceiver writes the events in the batches that an API server sends to a file, one event a line.
type batchReceiver struct {
	mu   sync.Mutex
	into io.Writer
}

// ServeHTTP accepts a batch. It refuses one that is not an EventList; the API server mentions that in its own log.
func (b *batchReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var list struct {
		Kind, APIVersion string
		Items            []json.RawMessage
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestBatch)).Decode(&list)
	isList := err == nil && list.Kind == "EventList" && list.APIVersion == auditv1.SchemeGroupVersion.String()
	if !isList {
		http.Error(w, "expected an EventList of "+auditv1.SchemeGroupVersion.String(), http.StatusBadRequest)
		return
	}
	var lines bytes.Buffer
	for _, item := range list.Items {
		if err := json.Compact(&lines, item); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		lines.WriteByte('\n')
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.into.Write(lines.Bytes()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// readLines returns the complete lines that the log got since it was opened. If a file has become shorter since, it
// returns all of it.
func (l *growingLog) readLines() ([]byte, error) {
	f, from := l.collected, int64(0)
	if f == nil {
		opened, err := os.Open(l.path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = opened.Close() }()
		f, from = opened, l.startOffset
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < from {
		from = 0
	}
	data, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	return data[:bytes.LastIndexByte(data, '\n')+1], err
}

// find returns the lines that contain one of the texts. It returns an error if there are none and none can come any
// more.
func (l *growingLog) find(texts ...string) (out []json.RawMessage, err error) {
	broken := l.failure() // before the log is read, so that everything written before the end is there
	data, err := l.readLines()
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		if slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(line, []byte(text)) }) {
			out = append(out, bytes.TrimSpace(line))
		}
	}
	if len(out) == 0 && broken != nil {
		return nil, fmt.Errorf("%s: %w", l.source, broken)
	}
	return out, nil
}
