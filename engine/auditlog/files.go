package auditlog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// logName is what files of a folder are called that are taken: those of an API server
// (audit-2026-01-02T15-04-05.000.log), of logrotate (audit.log.1.gz), of shippers (part-0001.jsonl.zst).
var logName = regexp.MustCompile(`\.(log|json|jsonl|ndjson)(\.[0-9]+|-[0-9]+)?(\.gz|\.zst)?$`)

// Files are the logs that a path names: the file, or the logs in the folder, not
// those in folders below it. leftOut are the others in it.
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
		return nil, nil, fmt.Errorf("%s: the folder has no audit log (expected files such as audit.log, audit.log.1.gz, events.jsonl.zst)", path)
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
	f, err := os.Open(path)
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

// unreadable counts a file with a broken head.
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
