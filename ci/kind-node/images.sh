# How images are made of folders, without an engine. Sourced by build.
# shellcheck shell=bash disable=SC2154

# archive FOLDER NAMES CONFIG FILE writes an image of one layer, as `docker save` writes one. NAMES are
# separated by spaces, CONFIG is the inside of the JSON object that says how it is run.
archive() {
  local folder=$1 names=$2 config=$3 file=$4 layer diff
  layer=$(mktemp -d "$work/layer.XXXXXX")
  tar -C "$folder" --numeric-owner --sort=name -cf "$layer/layer.tar" .
  diff=$(sha256sum "$layer/layer.tar" | cut -d' ' -f1)
  printf '{"architecture":"%s","os":"linux","created":"1970-01-01T00:00:00Z","config":{%s},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]},"history":[{"created":"1970-01-01T00:00:00Z","created_by":"ci/kind-node"}]}' \
    "$(go env GOARCH)" "$config" "$diff" >"$layer/config.json"
  printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "${names// /\",\"}" >"$layer/manifest.json"
  tar -C "$layer" --numeric-owner --owner=0 --group=0 -cf "$file" manifest.json config.json layer.tar
  rm -rf "$layer"
}

# component NAME FOLDER CONFIG makes the archive of a component's image in $work/components.
component() {
  mkdir -p "$work/components"
  archive "$2" "$1" '"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]'"${3:+,$3}" \
    "$work/components/$(basename "${1%%:*}").tar"
}

# with_programs FOLDER PROGRAM... puts programs where the manifests of kubeadm look for them.
with_programs() {
  local folder=$1
  shift
  mkdir -p "$folder/usr/local/bin" "$folder/tmp" "$folder/etc"
  chmod 1777 "$folder/tmp"
  cp "$@" "$folder/usr/local/bin/"
}

# iptables_into FOLDER ROOT copies iptables with its extensions and all libraries that those need; one
# that is missing makes rules fail without a word (the "statistic" of services needs libm).
iptables_into() {
  local folder=$1 root=$2 library name
  mkdir -p "$folder/usr/sbin" "$folder/run"
  ln -s usr/sbin "$folder/sbin"
  ln -s usr/lib "$folder/lib"
  if [ -e "$root/lib64" ]; then ln -s usr/lib64 "$folder/lib64"; fi
  cp "$root/usr/sbin/xtables-nft-multi" "$folder/usr/sbin/"
  for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
    ln -s xtables-nft-multi "$folder/usr/sbin/$name"
  done
  # shellcheck disable=SC2016
  chroot "$root" sh -c 'for file in /usr/sbin/xtables-nft-multi /usr/lib/*/xtables/*.so; do echo "$file"; ldd "$file" | grep -o "/[^ ]*"; done' |
    sort -u | while read -r library; do
    library=$(chroot "$root" readlink -f "$(dirname "$library")")/$(basename "$library")
    mkdir -p "$folder$(dirname "$library")"
    cp -L "$root$library" "$folder$library"
  done
}

# component_images makes the images that kubeadm asks for under the names that it asks for, and puts them
# into the node's containerd. Their versions are ours: an older kubeadm names an older etcd or CoreDNS.
component_images() {
  local root=$1 kubernetes name images=$work/folders wanted
  kubernetes=$(programs_dir "kubernetes-$minor")
  wanted=$("$kubernetes/kubeadm" config images list --kubernetes-version "v$version" 2>/dev/null)
  name_of() { grep "/$1:" <<<"$wanted"; }
  for name in kube-apiserver kube-controller-manager kube-scheduler; do
    with_programs "$images/$name" "$kubernetes/$name"
    component "$(name_of $name)" "$images/$name"
  done
  with_programs "$images/kube-proxy" "$kubernetes/kube-proxy"
  iptables_into "$images/kube-proxy" "$root"
  component "$(name_of kube-proxy)" "$images/kube-proxy"
  with_programs "$images/etcd" "$(programs_dir etcd)/etcd"
  component "$(name_of etcd)" "$images/etcd"
  with_programs "$images/coredns" "$(programs_dir coredns)/coredns"
  component "$(name_of coredns)" "$images/coredns" '"Entrypoint":["/usr/local/bin/coredns"]'
  with_programs "$images/pause" "$(programs_dir pause)/pause"
  component registry.k8s.io/pause:3.10.2 "$images/pause" '"Entrypoint":["/usr/local/bin/pause"]'
  import "$root"
}

# import lets a containerd of the node's version take in the archives, and keeps what it stored.
import() {
  local root=$1 programs pid file state=$work/containerd
  programs=$(programs_dir containerd)
  mkdir -p "$state"
  cat >"$state/config.toml" <<TOML
version = 3
root = '$state/root'
state = '$state/state'
disabled_plugins = ['io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime', 'io.containerd.grpc.v1.cri']
[grpc]
address = '$state/containerd.sock'
TOML
  "$programs/containerd" --config "$state/config.toml" >"$state/log" 2>&1 8>&- &
  pid=$!
  local ctr=("$programs/ctr" --address "$state/containerd.sock" --namespace k8s.io) waited=0
  until "${ctr[@]}" version >/dev/null 2>&1; do
    if ! kill -0 "$pid" 2>/dev/null || [ "$waited" -ge 60 ]; then
      tail -n 15 "$state/log" >&2
      fail "containerd did not start to take in the component images; its last lines are above"
    fi
    sleep 0.5
    waited=$((waited + 1))
  done
  for file in "$work"/components/*.tar; do
    "${ctr[@]}" images import --local --no-unpack "$file" >>"$state/log" 2>&1 || {
      kill "$pid"
      tail -n 5 "$state/log" >&2
      fail "containerd refused $(basename "$file"); its answer is above"
    }
  done
  kill "$pid"
  wait "$pid" || true
  mkdir -p "$root/var/lib"
  mv "$state/root" "$root/var/lib/containerd"
}
