#!/usr/bin/env bash

# Copyright The Kubernetes Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

set -o errexit
set -o nounset
set -o pipefail

# This script finds the components of the current source code and of the previous release, which it downloads, and then
# invokes whatever command is specified on the command line, from the root of the repository.

cd "$(dirname "${BASH_SOURCE[0]}")/../.."

platform="$(go env GOOS)/$(go env GOARCH)"
export KUBERNETES_SERVER_BIN_DIR="${KUBERNETES_SERVER_BIN_DIR:-$(pwd)/_output/local/bin/${platform}}"

if [[ -z "${KUBERNETES_PREVIOUS_SERVER_BIN_DIR:-}" ]]; then
  minor=$(hack/print-workspace-status.sh | sed -nE 's/^gitVersion v1\.([0-9]+)\..*/\1/p')
  version=$(curl -sSfL "https://dl.k8s.io/release/stable-1.$((minor - 1)).txt")
  KUBERNETES_PREVIOUS_SERVER_BIN_DIR="${KUBERNETES_SERVER_BIN_DIR}/cache-dir/${version}"
  if [[ ! -x "${KUBERNETES_PREVIOUS_SERVER_BIN_DIR}/kube-scheduler" ]]; then
    mkdir -p "${KUBERNETES_PREVIOUS_SERVER_BIN_DIR}"
    curl -sSfL "https://dl.k8s.io/release/${version}/kubernetes-server-${platform/\//-}.tar.gz" |
      tar -xz -C "${KUBERNETES_PREVIOUS_SERVER_BIN_DIR}" --strip-components=3 \
        kubernetes/server/bin/kube-apiserver kubernetes/server/bin/kube-controller-manager kubernetes/server/bin/kube-scheduler
  fi
fi
export KUBERNETES_PREVIOUS_SERVER_BIN_DIR

exec "$@"
