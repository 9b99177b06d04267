package local

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// fileLock is an exclusive flock. The kernel gives it up when this process ends in any way.
type fileLock struct{ file *os.File }

var errLocked = errors.New("locked by another process")

// tryLock takes the lock of a file, which it makes if need be, or returns errLocked.
func tryLock(path string) (*fileLock, error) {
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
			return nil, errLocked
		}
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	return &fileLock{file: file}, nil
}

// waitLock takes the lock of a file, waiting for its holder. waiting is called once if it has to.
func waitLock(ctx context.Context, path string, waiting func()) (*fileLock, error) {
	const interval = 50 * time.Millisecond
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for first := true; ; first = false {
		lock, err := tryLock(path)
		if !errors.Is(err, errLocked) {
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

// unlock gives the lock up. The file stays: removing it would let two processes hold locks of two
// files of the same name.
func (l *fileLock) unlock() { _ = l.file.Close() }
