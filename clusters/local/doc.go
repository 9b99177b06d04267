// Package local runs control planes on this machine: a real etcd and a real kube-apiserver as
// child processes, with their own keys, ports and folders.
//
// [Start] returns a [ControlPlane] that answers /readyz; [ControlPlane.Stop] ends it and removes everything it
// wrote. Several run at once in one process. [Binaries] finds the two programs, or builds them from the modules
// pinned in versions/, which are embedded so that this also works outside a clone of the repository.
//
// # More than one API server, and faults
//
// Options.Join adds an API server to the etcd and the keys of another control plane, so that a
// credential or a token for one is good for the other. Each is restarted, killed and stopped by
// itself; the one with the etcd has to be stopped last. [ControlPlane.KillAPIServer] and
// [ControlPlane.RestartEtcd] break things on purpose, and are not reported as failures.
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
// What the user asked wrongly, or can put right on this machine, is a [*UsageError]: an unknown
// version or gate, a busy port, a cache that cannot be written. A process that ended, or did not
// get ready, is a [*ProcessError] with its reason and last log lines.
package local
