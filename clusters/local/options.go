// Package local runs control planes on this machine: a real etcd and a real kube-apiserver as
// child processes, with their own keys, ports and folders.
//
// [Start] returns a [ControlPlane] that answers /readyz; [ControlPlane.Stop] ends it and removes everything it
// wrote. Several run at once in one process. [Binaries] finds the two programs, or builds them from the modules
// pinned in versions/, which are embedded so that this also works outside a clone of the repository.
//
// # More than one API server, and faults
//
// Options.Join adds an API server to the etcd and the keys of another control plane, so that a credential or a token for
// one is good for the other. Each is restarted, killed and stopped by itself, the one with the etcd last.
// [ControlPlane.KillAPIServer] and [ControlPlane.RestartEtcd] break things on purpose, and are not reported as failures.
//
// # What is left behind
//
// Nothing, whatever happens to this process:
//
//   - Stop kills the children, waits for them, and removes the run's folder. A caller has to call
//     it on each way out that runs code: a deferred Stop covers success, failure and a panic of
//     that goroutine, signal.NotifyContext with a deferred Stop covers Ctrl-C and SIGTERM.
//   - On Linux the children are also killed by the kernel when this process ends in any other way
//     (SIGKILL, out of memory, os.Exit, a panic elsewhere). Elsewhere they survive that; see the
//     decision record docs/adr/0001-own-processes.md.
//   - The folder of a killed run stays until the next Start on this machine, which removes every
//     folder whose lock nobody holds.
//
// # Errors
//
// What the user asked wrongly, or can put right here, is a [*usage.Error]: an unknown version or gate, a busy port, a
// read-only cache. A process that ended, or did not get ready, is a [*ProcessError] with its reason and last log lines.
package local

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/usage"
)

// DirPlaceholder stands for the run's folder in Options.AuthorizationConfig, AuditPolicy, Files, and KubeAPIServerArgs.
const DirPlaceholder = clusters.DirPlaceholder

const (
	// defaultReadyTimeout is generous. A control plane takes 3 s on an idle machine, and a busy machine must not make a
	// run fail.
	defaultReadyTimeout = 90 * time.Second
	// shutdownGrace is how long an orderly end may take. kube-apiserver needs about 2 s.
	shutdownGrace = 20 * time.Second
)

// Options describe a control plane. By default it has the newest release and its gates, Node and RBAC, no audit, and a
// free port.
type Options struct {
	Release         Release // what to run; the zero value is the newest of [Releases]
	EmulatedVersion string  // the minor to emulate, such as "1.35"; if empty, the binary's own
	// FeatureGates are set on or off. Others keep their default. A gate that the release does not know is a
	// [*usage.Error].
	FeatureGates map[string]bool
	// AuthorizationConfig is an AuthorizationConfiguration in YAML. If nil, --authorization-mode is Node,RBAC.
	AuthorizationConfig []byte
	// AuditPolicy is an audit Policy in YAML. If nil, nothing is audited.
	AuditPolicy []byte
	// AuditSink receives the audit events: each Write is one JSON document and a newline, and there are never two at
	// the same time. An event is written before its request is answered (blocking mode), so it arrives within moments
	// of the response, and a slow sink slows the API server down. Events include this package's own requests, which the
	// admin sends. If it is nil, audited events are written to audit.jsonl in the run's folder. Err and Stop report an
	// error of the sink.
	AuditSink io.Writer
	// Port is the port of the API server on 127.0.0.1. 0 means a free port. A busy port is a [*usage.Error].
	Port int
	// Unchanged keeps the default admission plugins. Otherwise ServiceAccount is off, because no controller creates the
	// accounts that it asks for.
	Unchanged bool
	// KubeAPIServerArgs follow all other arguments, so that they take precedence.
	KubeAPIServerArgs []string
	// Files are written to the run's folder before the API server starts, and again on a restart. Only this user can
	// read them. They are kubeconfigs of webhooks, for example. Names are relative.
	Files map[string][]byte
	// Keep leaves the folder with its logs, keys and etcd's data behind after Stop.
	Keep bool
	// Binaries finds or builds the programs. If it is nil, the zero [Binaries] does.
	Binaries *Binaries
	// KubeAPIServerPath and EtcdPath are programs that replace what Binaries finds, such as a modified kube-apiserver.
	KubeAPIServerPath, EtcdPath string
	// KubeAPIServerEnv are further environment variables of kube-apiserver, NAME=value, beside those of this process.
	KubeAPIServerEnv []string
	// Join is a control plane whose etcd and keys are used: several API servers on one etcd, as
	// high availability has them. Everything else is this one's own. Join has to be stopped after
	// this one, whose own end leaves etcd running. EtcdPath has no effect then.
	//
	// Two things of API servers on one machine are not their own, as they would be on two: the name
	// and the Lease of their identity, which follow from the machine's name. They take turns to
	// renew the Lease, and log that it was modified. Only what --peer-ca-file switches on reads it.
	Join *ControlPlane
	// ReadyTimeout is how long the API server may take to become ready, if the context does not end sooner. 0 means 90
	// s.
	ReadyTimeout time.Duration
}

func (o Options) clone() Options {
	o.FeatureGates, o.Files = maps.Clone(o.FeatureGates), maps.Clone(o.Files)
	o.AuthorizationConfig, o.AuditPolicy = slices.Clone(o.AuthorizationConfig), slices.Clone(o.AuditPolicy)
	o.KubeAPIServerArgs, o.KubeAPIServerEnv = slices.Clone(o.KubeAPIServerArgs), slices.Clone(o.KubeAPIServerEnv)
	return o
}

func (o Options) complete() (Options, error) {
	o = o.clone()
	o.Release = cmp.Or(o.Release, Newest())
	emulatedVersion, err := o.Release.parseEmulated(o.EmulatedVersion)
	if err != nil {
		return o, err
	}
	o.EmulatedVersion = emulatedVersion
	for gate := range o.FeatureGates {
		if gate == "" || strings.ContainsAny(gate, "=,: \t\n") {
			return o, &usage.Error{Problem: fmt.Sprintf("%q is not the name of a feature gate", gate)}
		}
	}
	o.Binaries = cmp.Or(o.Binaries, &Binaries{})
	o.ReadyTimeout = cmp.Or(o.ReadyTimeout, defaultReadyTimeout)
	return o, nil
}

// These are names of files in the run's folder, as arguments.yaml has them.
const (
	authorizationFile = "authorization.yaml"
	auditPolicyFile   = "audit-policy.yaml"
	auditFile         = "audit.jsonl"
	kubeconfigFile    = "kubeconfig"
	etcdSocket        = "etcd.sock"
)

//go:embed arguments.yaml
var argumentsYAML []byte

// arguments are those that the programs always have, those that are needed because there are no controllers, and those
// for an audit log. Refusals are messages with which kube-apiserver refuses its arguments, with what to do about each.
var arguments = fixtures.Table[struct {
	Etcd, KubeAPIServer, WithoutControllers, Audit []string
	Refusals                                       []struct{ Text, Hint string }
}]("arguments.yaml", argumentsYAML)

func apiServerArgs(o Options, port int, dir string) []string {
	args := append(slices.Clone(arguments.KubeAPIServer), fmt.Sprintf("--secure-port=%d", port))
	if !o.Unchanged {
		args = append(args, arguments.WithoutControllers...)
	}
	if o.EmulatedVersion != "" {
		args = append(args, "--emulated-version="+o.EmulatedVersion)
	}
	if len(o.FeatureGates) > 0 {
		args = append(args, "--feature-gates="+GatesValue(o.FeatureGates))
	}
	if o.AuthorizationConfig != nil {
		args = append(args, "--authorization-config="+authorizationFile)
	} else {
		args = append(args, "--authorization-mode=Node,RBAC")
	}
	if o.AuditPolicy != nil {
		args = append(args, arguments.Audit...)
	}
	for _, arg := range o.KubeAPIServerArgs {
		args = append(args, strings.ReplaceAll(arg, DirPlaceholder, dir))
	}
	return args
}

// GatesValue is the value of --feature-gates, in a fixed order.
func GatesValue(gates map[string]bool) string {
	return cliflag.NewMapStringBool(&gates).String()
}

const (
	// StateVariable names the environment variable that moves the folder of all runs.
	StateVariable = "AUTHZCONF_STATE"
	// runPrefix is the beginning of the name of each run's folder, so that nothing else is ever removed.
	runPrefix = "control-plane-"
	lockFile  = "lock"
	// keepFile marks a folder that remains after its run because the user wants it.
	keepFile = "keep"
)

type runDir struct {
	path string
	lock *FileLock
	keep bool
}

// StateRoot returns the folder that contains the folders of all runs: the one that StateVariable names, or
// authzconf/run in the user's cache folder.
func StateRoot() (string, error) {
	return folderFor("no folder for the state of control planes", StateVariable, "run")
}

// folderFor is the folder that an environment variable names, or sub of authzconf's in the user's cache folder.
func folderFor(none, variable, sub string) (string, error) {
	if path := os.Getenv(variable); path != "" {
		return filepath.Abs(path)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", &usage.Error{Problem: none + ": " + err.Error(), Hint: "set " + variable, Err: err}
	}
	return filepath.Join(cache, "authzconf", sub), nil
}

// newRunDir creates and locks the folder of a run under the state root. It also removes leftovers of killed runs there.
func newRunDir(ctx context.Context, name string, keep bool) (*runDir, error) {
	root, err := StateRoot()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, folderError("state folder", root, StateVariable, err)
	}
	// This lock is held while folders are created and removed, because a new folder is not locked yet when it appears.
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

// sweep removes, if it can, the folders of runs that are over, whose lock is free. The caller has the root's lock.
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

// write writes a file into the folder in one step, so that a kube-apiserver that reloads it never sees an incomplete
// one. Only this user can read the file.
func (d *runDir) write(name string, data []byte) error {
	if err := WriteFile(filepath.Join(d.path, name), data); err != nil {
		return folderError("state folder", d.path, StateVariable, err)
	}
	return nil
}

// WriteFile writes in one step a file that only this user can read.
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

// remove deletes the folder, unless it is to be kept, and releases its lock.
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

// ReloadAuthorization replaces the AuthorizationConfiguration with which the API server was started. The API server
// watches the file. It does not wait until the API server uses the new one. A restart restores the first one.
func (c *ControlPlane) ReloadAuthorization(config []byte) error {
	return c.run.write(authorizationFile, []byte(strings.ReplaceAll(string(config), DirPlaceholder, c.run.path)))
}

// FileLock is an exclusive lock between processes (flock). The kernel gives it up when this process ends in any way.
type FileLock struct{ file *os.File }

// ErrLocked means that another process has the lock.
var ErrLocked = errors.New("locked by another process")

// TryLock takes the lock of a file, which it creates if necessary, or returns ErrLocked.
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

// WaitLock takes the lock of a file. If another process has it, it waits until ctx ends. waiting, unless nil, is called
// if it has to wait.
func WaitLock(ctx context.Context, path string, waiting func()) (*FileLock, error) {
	const interval = 50 * time.Millisecond
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for first := true; ; first = false {
		if lock, err := TryLock(path); !errors.Is(err, ErrLocked) {
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

// Unlock releases the lock. The file stays, because otherwise two processes could lock two files of the same name.
func (l *FileLock) Unlock() { _ = l.file.Close() }
