# Shared by the scripts in this folder, which source it. It starts nothing.
# shellcheck shell=bash disable=SC2034

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
cache=${AUTHZCONF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/authzconf}

# What programs depend on beside the arguments, fixed so that a user's settings for other work change
# nothing. The same as in clusters/local, so that Go's cache of compiled packages is shared with it.
export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly GOOS=linux

begin=$SECONDS

# say prints a line of progress. The standard output is kept for results.
say() { printf '%s: %s (%d s)\n' "${0##*/}" "$*" "$((SECONDS - begin))" >&2; }

# fail ends the script for a reason that the user can mend: exit code 2.
fail() {
  printf '%s: %s\n' "${0##*/}" "$1" >&2
  [ $# -lt 2 ] || printf '  %s\n' "$2" >&2
  exit 2
}

# need_root WHAT [HINT]
need_root() {
  [ "$(id -u)" = 0 ] || fail "$1 needs root" "${2:-run it as root (sudo -E), or name a ready-made node image with --kind-node-image}"
}

# need_commands takes pairs: a command and the Debian package that has it.
need_commands() {
  local missing=()
  while [ $# -gt 0 ]; do
    command -v "$1" >/dev/null || missing+=("$2")
    shift 2
  done
  [ ${#missing[@]} = 0 ] || fail "missing on this machine: ${missing[*]}" \
    "on Debian: ci/kind-node/install, or apt-get install ${missing[*]}"
}

# digest names the content of its standard input.
digest() { sha256sum | cut -c1-16; }

# digest_of names the content and the names of files and folders, wherever the repository is.
digest_of() {
  (cd "$repository" && find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) | digest
}

# answers: whether an engine is there, within a few seconds. No argument: the one docker uses by itself.
answers() {
  if [ $# -gt 0 ]; then local -x DOCKER_HOST=$1; fi
  timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1
}

# can_start: whether an engine of its own could run here. In a container that is not privileged it could not, though root is there.
can_start() {
  local net_admin=12 sys_admin=21 effective
  [ "$(id -u)" = 0 ] || return 1
  effective=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
  [ $((16#$effective >> net_admin & 16#$effective >> sys_admin & 1)) = 1 ]
}
