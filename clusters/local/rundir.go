package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// StateVariable names the environment variable that moves the folder of all runs.
	StateVariable = "AUTHZCONF_STATE"
	// runPrefix begins the name of each run's folder, so that nothing else is ever swept.
	runPrefix = "control-plane-"
	lockFile  = "lock"
	// keepFile marks a folder that outlives its run because the user wants it.
	keepFile = "keep"
)

// runDir is the folder of one run, locked as long as the run lives.
type runDir struct {
	path string
	lock *FileLock
	keep bool
}

// StateRoot is the folder that holds the folders of all runs: what StateVariable names, or
// authzconf/run in the user's cache folder.
func StateRoot() (string, error) {
	return folderFor("no folder for the state of control planes", StateVariable, "run")
}

// folderFor is the folder that an environment variable names, or sub of authzconf's in the user's cache folder.
func folderFor(none, variable, sub string) (string, error) {
	if named := os.Getenv(variable); named != "" {
		return filepath.Abs(named)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", &UsageError{Problem: none + ": " + err.Error(), Hint: "set " + variable, Err: err}
	}
	return filepath.Join(cache, "authzconf", sub), nil
}

// newRunDir makes and locks the folder of a run under the state root. Leftovers of killed runs there are removed.
func newRunDir(ctx context.Context, name string, keep bool) (*runDir, error) {
	root, err := StateRoot()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, folderError("state folder", root, StateVariable, err)
	}
	// Held while folders are made and swept: a new one is not locked yet when it appears.
	rootLock, err := WaitLock(ctx, filepath.Join(root, lockFile), nil)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, folderError("state folder", root, StateVariable, err)
	}
	defer rootLock.Unlock()
	sweep(root)
	path, err := os.MkdirTemp(root, runPrefix+name+"-")
	if err != nil {
		return nil, folderError("state folder", root, StateVariable, err)
	}
	lock, err := TryLock(filepath.Join(path, lockFile))
	if err != nil {
		return nil, folderError("state folder", path, StateVariable, err)
	}
	dir := &runDir{path: path, lock: lock, keep: keep}
	if keep {
		if err := dir.write(keepFile, nil); err != nil {
			return nil, errors.Join(err, dir.remove())
		}
	}
	return dir, nil
}

// sweep removes the folders of runs that are over: those whose lock is free. Called under the
// root's lock. What cannot be removed stays for the next time.
func sweep(root string) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, entry := range entries {
		path := filepath.Join(root, entry.Name())
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), runPrefix) {
			continue
		}
		if _, err := os.Stat(filepath.Join(path, keepFile)); err == nil {
			continue
		}
		lock, err := TryLock(filepath.Join(path, lockFile))
		if err != nil {
			continue
		}
		_ = os.RemoveAll(path)
		lock.Unlock()
	}
}

// write puts a file that only this user can read into the folder, replacing it in one step: a
// kube-apiserver that reloads it never sees a half.
func (d *runDir) write(name string, data []byte) error {
	if err := WriteFile(filepath.Join(d.path, name), data); err != nil {
		return folderError("state folder", d.path, StateVariable, err)
	}
	return nil
}

// WriteFile puts a file that only this user can read into place in one step.
func WriteFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = temporary.Write(data)
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
	}
	return err
}

// remove deletes the folder, unless it is to be kept, and gives up its lock.
func (d *runDir) remove() error {
	defer d.lock.Unlock()
	if d.keep {
		return nil
	}
	if err := os.RemoveAll(d.path); err != nil {
		return fmt.Errorf("removing the folder of a control plane: %w", err)
	}
	return nil
}

func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// ReloadAuthorization puts another AuthorizationConfiguration in place of the one that the API server was started with,
// which watches the file. It does not wait until the API server has taken it over. A restart brings back the first one.
func (c *ControlPlane) ReloadAuthorization(config []byte) error {
	return c.run.write(authorizationFile, []byte(strings.ReplaceAll(string(config), DirPlaceholder, c.run.path)))
}

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
