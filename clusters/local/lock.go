package local

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// FileLock is an exclusive lock between processes (flock). The kernel gives it up when this process ends in any way.
type FileLock struct{ file *os.File }

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// TryLock takes the lock of a file, which it makes if need be, or returns ErrLocked.
func TryLock(path string) (*FileLock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	return &FileLock{file: file}, nil
}

// WaitLock takes the lock of a file, waiting for its holder until ctx ends. waiting, unless nil, is called
// once if it has to wait.
func WaitLock(ctx context.Context, path string, waiting func()) (*FileLock, error) {
	const interval = 50 * time.Millisecond
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for first := true; ; first = false {
		lock, err := TryLock(path)
		if !errors.Is(err, ErrLocked) {
			return lock, err
		}
		if first && waiting != nil {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// Unlock gives the lock up. The file stays: removing it would let two processes hold locks of two
// files of the same name.
func (l *FileLock) Unlock() { _ = l.file.Close() }
