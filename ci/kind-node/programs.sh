# How the programs of a node are built from pinned Go modules. Sourced by build.
# shellcheck shell=bash disable=SC2154

strip='-s -w'

minors() { (cd "$here/versions" && for folder in kubernetes-*; do printf ' %s' "${folder#kubernetes-}"; done); }

# pinned prints the version of a module, without its v, that the module in versions/ requires.
pinned() { sed -nE "s#^(require)?[[:space:]]*$2 v([^ ]+).*#\2#p" "$(module_files "$1" | head -n 1)" | head -n 1; }

# module_files are go.mod and go.sum. etcd is the one that the control planes of clusters/local use.
module_files() {
  if [ "$1" = etcd ]; then
    printf '%s\n' "$repository"/clusters/local/versions/etcd.{mod,sum}
  else
    printf '%s\n' "$here/versions/$1"/go.{mod,sum}
  fi
}

# packages_of are the main packages that a module is here for, and flags_of what they are built with.
packages_of() {
  case $1 in
  kubernetes-*) printf 'k8s.io/kubernetes/cmd/%s\n' kubelet kubeadm kubectl kube-apiserver kube-controller-manager kube-scheduler kube-proxy ;;
  containerd) printf 'github.com/containerd/containerd/v2/cmd/%s\n' containerd containerd-shim-runc-v2 ctr ;;
  etcd) echo go.etcd.io/etcd/server/v3 ;;
  coredns) echo . ;;
  pause) echo ./ci/kind-node/pause ;;
  esac
}

flags_of() {
  case $1 in
  kubernetes-*) printf '%s\n' -ldflags "$strip -X k8s.io/component-base/version.gitVersion=v$(pinned "$1" k8s.io/kubernetes)" ;;
  # Snapshotters that need C libraries or kernels of their own, and are not used.
  containerd) printf '%s\n' -tags no_btrfs,no_zfs,no_devmapper,no_aufs,netgo,osusergo -ldflags "$strip -X github.com/containerd/containerd/v2/version.Version=v$(pinned containerd github.com/containerd/containerd/v2)" ;;
  *) printf '%s\n' -ldflags "$strip" ;;
  esac
}

# source_of is the folder that the go command works in.
source_of() {
  case $1 in
  etcd) echo "$store/modules/etcd" ;;
  pause) echo "$repository" ;;
  *) echo "$here/versions/$1" ;;
  esac
}

# programs_dir names the folder of built programs by all that they depend on.
programs_dir() {
  local key
  key=$(
    {
      flags_of "$1"
      packages_of "$1"
      go env GOARCH GOVERSION
      if [ "$1" = pause ]; then
        cat "$here"/pause/*.go
      else
        module_files "$1" | xargs -d '\n' cat
        if [ "$1" = coredns ]; then cat "$here"/versions/coredns/*.go; fi
      fi
    } | digest
  )
  echo "$store/programs/$1-$key"
}

# build_module builds into a folder beside the right one and renames it, so that it is whole or not there.
build_module() {
  local name=$1 target flags packages
  target=$(programs_dir "$name")
  [ ! -d "$target" ] || return 0
  mapfile -t flags < <(flags_of "$name")
  mapfile -t packages < <(packages_of "$name")
  if [ "$name" = etcd ]; then
    mkdir -p "$store/modules/etcd"
    cp "$repository/clusters/local/versions/etcd.mod" "$store/modules/etcd/go.mod"
    cp "$repository/clusters/local/versions/etcd.sum" "$store/modules/etcd/go.sum"
  fi
  say "building $name: minutes the first time, at once from then on"
  mkdir -p "$work/$name"
  (cd "$(source_of "$name")" && go build -trimpath -buildvcs=false "${flags[@]}" -o "$work/$name/" "${packages[@]}") 2>"$work/$name.log" || {
    tail -n 15 "$work/$name.log" >&2
    fail "building $name failed; the go command's last lines are above" "they may name a proxy, a network or a full disk to put right"
  }
  # A main package in a module's root has the module's name, which here ends in a version.
  if [ "$name" = etcd ] && [ ! -f "$work/etcd/etcd" ]; then mv "$work/etcd"/* "$work/etcd-program" && mv "$work/etcd-program" "$work/etcd/etcd"; fi
  mkdir -p "$store/programs"
  mv "$work/$name" "$target"
}

build_programs() {
  local name
  for name in pause etcd containerd coredns "kubernetes-$minor"; do build_module "$name"; done
}
