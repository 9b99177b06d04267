package filing

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

const (
	// inputLimit is how many bytes a file that a command line names may have. It also ends the reading of a file
	// without an end.
	inputLimit = 128 << 20
	// inputWait is how long a pipe may keep its reader waiting.
	inputWait = 30 * time.Second
)

// Source is a file that a user names.
type Source struct{ *os.File }

// Open opens a file that may be a pipe. It does not wait for a writer, because nothing could interrupt that. Reading a
// silent pipe ends with an error.
func Open(path string) (Source, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return Source{f}, err
}

// Read reads, but does not wait for long.
func (s Source) Read(into []byte) (int, error) {
	_ = s.SetReadDeadline(time.Now().Add(inputWait)) // only pipes and terminals have a deadline
	return s.File.Read(into)
}

// Input is the content of a file that a user names.
func Input(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, inputLimit+1))
	if len(data) > inputLimit {
		return nil, fmt.Errorf("%s is larger than %d MiB (expected a file to read as a whole)", path, inputLimit>>20)
	}
	return data, err
}

// OpenFolder opens a folder that a user names. If it is something else it returns an error, because opening a pipe
// would not end.
func OpenFolder(path string) (*os.Root, error) {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return nil, &os.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	return os.OpenRoot(path)
}
