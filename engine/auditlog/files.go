package auditlog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/authzconf/authzconf/reports/filing"
)

// logName is what files of a folder are called that are taken: those of an API server
// (audit-2026-01-02T15-04-05.000.log), of logrotate (audit.log.1.gz), of shippers (part-0001.jsonl.zst).
var logName = regexp.MustCompile(`\.(log|json|jsonl|ndjson)(\.[0-9]+|-[0-9]+)?(\.gz|\.zst)?$`)

// Files are the logs that a path names: the file, or those in the folder itself. leftOut are the other files in it.
func Files(path string) (logs, leftOut []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, nil, err
	}
	for _, entry := range entries {
		file := filepath.Join(path, entry.Name())
		switch info, err := os.Stat(file); { // through links
		case err != nil:
			return nil, nil, err
		case info.Mode().IsRegular() && logName.MatchString(entry.Name()):
			logs = append(logs, file)
		case info.Mode().IsRegular():
			leftOut = append(leftOut, file)
		}
	}
	if len(logs) == 0 {
		return nil, nil, fmt.Errorf(
			"%s: the folder has no audit log (expected files such as audit.log, audit.log.1.gz, events.jsonl.zst)",
			path,
		)
	}
	return logs, leftOut, nil
}

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// zstdMemory is the largest window that is decompressed: that of zstd --long=27.
const zstdMemory = 128 << 20

// ReadFile reads a log, compressed or not, whatever its name is. A compressed one
// that ends too early is read as far as it goes and counted as a bad line.
func (r *Reader) ReadFile(ctx context.Context, path string) (err error) {
	f, err := filing.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	in := bufio.NewReaderSize(f, chunk)
	head, err := in.Peek(len(zstdMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", path, err)
	}
	var plain io.Reader = f
	compressed := true
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		z, err := gzip.NewReader(in)
		if err != nil {
			return r.unreadable(path, err)
		}
		defer func() { _ = z.Close() }()
		plain = z
	case bytes.Equal(head, zstdMagic):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdMemory))
		if err != nil {
			return r.unreadable(path, err)
		}
		defer z.Close()
		plain = z
	default:
		compressed = false
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			plain = in // a pipe
		}
	}
	source := &interruptible{ctx, plain, nil}
	err = r.Read(path, source)
	switch {
	case err == nil, ctx.Err() != nil:
		return ctx.Err()
	case compressed && source.failed != nil && errors.Is(err, source.failed):
		r.bad(0, "the compressed file cannot be read on: "+err.Error())
		return nil
	}
	return fmt.Errorf("%s: %w", path, err)
}

func (r *Reader) unreadable(path string, err error) error {
	r.file, r.line = path, 0
	r.stats.Files++
	r.bad(0, "the compressed file cannot be read: "+err.Error())
	return nil
}

// interruptible ends with its context, and keeps the error of what it reads.
type interruptible struct {
	ctx    context.Context
	from   io.Reader
	failed error
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := i.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		i.failed = err
	}
	return n, err
}

// spread tells whether a log begins with an EventList over several lines, as a person's tools write one.
func spread(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	first, _, found := bytes.Cut(data, []byte{'\n'})
	first = bytes.TrimSpace(first)
	return found && len(first) > 0 && first[0] == '{' && first[len(first)-1] != '}' &&
		bytes.Contains(data[:min(len(data), 4<<10)], listHead)
}

type countingReader struct {
	io.Reader
	n *int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.n += int64(n)
	return n, err
}

// list is an EventList under way: no more is read for one value than fits into the memory.
type list struct {
	*json.Decoder
	source io.LimitedReader
}

func (l *list) value() (raw json.RawMessage, err error) {
	l.source.N = longestLine
	return raw, l.Decode(&raw)
}

// items reads EventLists, one event at a time, to the end.
func (r *Reader) items(in io.Reader) error {
	d := &list{source: io.LimitedReader{R: in}}
	d.Decoder = json.NewDecoder(&d.source)
	for {
		d.source.N = longestLine
		_, err := d.Token() // the list's opening brace
		switch {
		case errors.Is(err, io.EOF) && d.source.N > 0:
			return nil
		case err != nil:
			return r.broken(d, err, 0)
		}
		if whole, err := r.fields(d); err != nil || !whole {
			return err
		}
		if _, err := d.Token(); err != nil { // the list's closing brace
			return r.broken(d, err, 0)
		}
		if r.Progress != nil {
			r.Progress(r.stats)
		}
	}
}

// fields reads the fields of an EventList, and reports whether it came to the end of them. What cannot be read on is
// counted as bad, and is not an error.
func (r *Reader) fields(d *list) (whole bool, err error) {
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return false, r.broken(d, err, 0)
		}
		if key == "items" {
			if whole, err := r.array(d); err != nil || !whole {
				return false, err
			}
			continue
		}
		if _, err := d.value(); err != nil {
			return false, r.broken(d, err, 0)
		}
	}
	return true, nil
}

func (r *Reader) array(d *list) (whole bool, err error) {
	open, err := d.Token()
	if err != nil {
		return false, r.broken(d, err, 0)
	}
	if open != json.Delim('[') {
		r.bad(0, "an EventList whose items are not a list")
		return false, nil
	}
	for n := int64(1); d.More(); n++ {
		raw, err := d.value()
		if err != nil {
			return false, r.broken(d, err, n)
		}
		if !bytes.Contains(raw, needle) {
			r.stats.Events++
			continue
		}
		if raw, err = typed(raw); err != nil {
			r.bad(n, err.Error())
			continue
		}
		if err := r.event(raw, n); err != nil {
			return false, err
		}
	}
	if _, err = d.Token(); err != nil {
		return false, r.broken(d, err, 0)
	}
	return true, nil
}

func typed(raw json.RawMessage) (json.RawMessage, error) {
	var item map[string]json.RawMessage
	if err := json.Unmarshal(raw, &item); err != nil {
		return nil, fmt.Errorf("not an event: %w", err)
	}
	if item["kind"] != nil {
		return raw, nil
	}
	item["kind"], item["apiVersion"] = json.RawMessage(`"`+eventKind+`"`), json.RawMessage(`"`+apiGroup+`v1"`)
	return json.Marshal(item)
}

// broken counts a list that cannot be read on: of what follows nothing is known.
func (r *Reader) broken(d *list, err error, item int64) error {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	switch ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); {
	case ended && d.source.N <= 0:
		r.bad(item, "an EventList cannot be read on: it is longer than 16 MiB")
	case ended || syntax:
		r.bad(item, "an EventList that is cut off or not JSON: "+err.Error())
	default:
		return err
	}
	return nil
}
