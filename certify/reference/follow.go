package reference

import (
	"os"
	"sync"
	"time"
)

// File is a file that may change, such as one that a policy hook overwrites.
type File[T any] struct {
	path  string
	parse func(path string, raw []byte) (T, error)

	mu   sync.Mutex
	when time.Time
	size int64
}

// Follow reads a file for the first time.
func Follow[T any](path string, parse func(path string, raw []byte) (T, error)) (*File[T], T, error) {
	f := &File[T]{path: path, parse: parse}
	first, _, err := f.Changed()
	return f, first, err
}

// Changed reads the file if it is not as it was when it was last read without an error.
func (f *File[T]) Changed() (value T, changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil || info.ModTime().Equal(f.when) && info.Size() == f.size {
		return value, false, err
	}
	raw, err := os.ReadFile(f.path)
	if err != nil {
		return value, false, err
	}
	if value, err = f.parse(f.path, raw); err == nil {
		f.when, f.size = info.ModTime(), info.Size()
	}
	return value, err == nil, err
}
