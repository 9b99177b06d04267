# Results go to _output/. What is slow to build (control planes, golangci-lint) is kept in the
# user's cache directory, so that the next clone finds it.

KUBERNETES ?= 1.37
# The minor before it, for skew and upgrades.
PREVIOUS   ?= 1.36
REPORT_DIR ?= _output/report
FUZZTIME   ?= 10s

VERSION   := $(or $(shell git describe --tags --always --dirty 2>/dev/null),unknown)
AUTHZCONF := _output/authzconf
# The race detector needs cgo, and cgo a C compiler; without them the tests run without it.
RACE       = $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

.PHONY: conformance
conformance: build ## certify a kube-apiserver, gate on and gate off (REPORT_DIR, KUBERNETES)
	$(AUTHZCONF) run --provider local --kubernetes $(KUBERNETES) --gate both --require core,extended --report-dir $(REPORT_DIR)

# What is switched off elsewhere (docs/running.md) is on here, and the report compares.
.PHONY: unchanged
unchanged: build ## the core scenarios on an API server that keeps its defaults, and on one as usual, compared (KUBERNETES)
	$(AUTHZCONF) run --kubernetes $(KUBERNETES) --gate default --unchanged default --level core --report-dir _output/unchanged
	$(AUTHZCONF) verify _output/unchanged

# Faults that only requests at once show: no scenario finds them (ci/mutants/concurrency.yaml), and its counts do.
STORM_REPORT ?= _output/storm
.PHONY: storm
storm: build ## storm a kube-apiserver for a minute, and compare each count of its access reviews (KUBERNETES, STORM_REPORT)
	$(AUTHZCONF) load --profile concurrency --kubernetes $(KUBERNETES) --report-dir $(STORM_REPORT)
	$(AUTHZCONF) verify $(STORM_REPORT)

# Everything from nothing: an engine that can run nodes, a node image without a registry, and two
# clusters, gate on and gate off. The chains of special authorizers are left to the local control plane, as are
# their counters, and the drain of a node: here DaemonSets put pods on it, which kubectl refuses to delete.
KIND_SKIP ?= ^kubernetes/(chains|raw-headers)/|^kep-5284/(monitoring|alternatives)/|/superman-drains-mynode$$|/[0-9.]+-drain-as|^periscope/.*webhook
# Tests with clusters of their own: a release runs all of them (TestKind).
KIND_TESTS ?= TestKindNetwork
.PHONY: kind-conformance
kind-conformance: KIND_REPORT ?= _output/kind
kind-conformance: build ## the same on clusters of kind with two nodes (KUBERNETES, KIND_SKIP, KIND_REPORT)
	@ci/kind-node/install engine
	@eval "$$(ci/kind-node/engine start)" && image=$$(ci/kind-node/image $(KUBERNETES)) && \
	$(AUTHZCONF) run --provider kind --kubernetes $(KUBERNETES) --gate both --skip '$(KIND_SKIP)' --kind-node-image $$image --report-dir $(KIND_REPORT) && \
	$(AUTHZCONF) verify $(KIND_REPORT) && \
	AUTHZCONF_KIND_NODE_IMAGE=$$image go test -count 1 -timeout 10m -run '$(KIND_TESTS)' ./clusters/kind ./engine/server

# The oldest nodes that the version skew policy allows beside the newest API server.
NODES ?= 1.34

.PHONY: kind-skew
kind-skew: KIND_REPORT ?= _output/kind-skew
kind-skew: build ## scenarios about nodes and node agents on a cluster of kind with older nodes (KUBERNETES, NODES, KIND_REPORT)
	@ci/kind-node/install engine
	@eval "$$(ci/kind-node/engine start)" && for minor in $(KUBERNETES) $(NODES); do ci/kind-node/image $$minor >&2 || exit; done && \
	$(AUTHZCONF) run --provider kind --kubernetes $(KUBERNETES) --nodes-kubernetes $(NODES) --gate on --focus '^(kep-5284/nodes|node-agents)/' --report-dir $(KIND_REPORT) && \
	$(AUTHZCONF) verify $(KIND_REPORT)

# Of three API servers behind kind's load balancer two are of the minor before. The test is about three of the same.
.PHONY: kind-control-planes
kind-control-planes: KIND_REPORT ?= _output/kind-control-planes
kind-control-planes: build ## the same on a cluster of kind with three control planes of two versions, and that nothing is left of it (KUBERNETES, PREVIOUS, KIND_REPORT)
	@ci/kind-node/install engine
	@eval "$$(ci/kind-node/engine start)" && image=$$(ci/kind-node/image $(KUBERNETES)) && ci/kind-node/image $(PREVIOUS) >&2 && \
	ci/kind-node/build-balancer $$image >&2 && \
	$(AUTHZCONF) run --provider kind --kubernetes $(KUBERNETES) --control-planes-kubernetes $(PREVIOUS),$(PREVIOUS) --gate on --focus '^(kep-5284/nodes|node-agents)/' --report-dir $(KIND_REPORT) && \
	$(AUTHZCONF) verify $(KIND_REPORT) && \
	AUTHZCONF_KIND_NODE_IMAGE=$$image go test -count 1 -timeout 15m -run TestThreeControlPlanes ./engine/server

# A profile, and flags that change it: a cluster makes its agents through the API, so that the gate has fewer.
STORM ?= concurrency --nodes 200 --variants associated-node,denied

.PHONY: kind-storm
kind-storm: KIND_REPORT ?= _output/kind-storm
kind-storm: build ## a storm by counts on clusters of kind (KUBERNETES, STORM, KIND_REPORT)
	@ci/kind-node/install engine
	@eval "$$(ci/kind-node/engine start)" && image=$$(ci/kind-node/image $(KUBERNETES)) && \
	$(AUTHZCONF) load --provider kind --kubernetes $(KUBERNETES) --profile $(STORM) --kind-node-image $$image --report-dir $(KIND_REPORT) && \
	$(AUTHZCONF) verify $(KIND_REPORT)

# The API server of a cluster with nodes is replaced by those of other versions and states of the gate, and the kubelets by
# those of other versions: the control plane first, then the nodes; back in the other order; and again.
KIND_PATH ?= 1.36,1.37,nodes=1.37,1.37-gate,1.37,nodes=1.36,1.36,1.37,nodes=1.37

.PHONY: kind-upgrade
kind-upgrade: KIND_REPORT ?= _output/kind-upgrade
kind-upgrade: build ## an upgrade path on a cluster of kind (KIND_PATH, KIND_REPORT)
	@ci/kind-node/install engine
	@eval "$$(ci/kind-node/engine start)" && for minor in $$(echo $(KIND_PATH) | grep -oE '1\.[0-9]+' | sort -u); do ci/kind-node/image $$minor >&2 || exit; done && \
	$(AUTHZCONF) upgrade --provider kind --path $(KIND_PATH) --report-dir $(KIND_REPORT) && \
	$(AUTHZCONF) verify $(KIND_REPORT)

# The API servers of a cluster with three are replaced one after the other, while requests go to its load balancer.
KIND_HA_PATH ?= $(PREVIOUS),$(KUBERNETES),$(PREVIOUS)

.PHONY: kind-high-availability
kind-high-availability: KIND_REPORT ?= _output/kind-high-availability
kind-high-availability: build ## an upgrade path on a cluster of kind with three API servers, replaced one by one (KIND_HA_PATH, KIND_REPORT)
	@ci/kind-node/install engine
	@eval "$$(ci/kind-node/engine start)" && image=$$(ci/kind-node/image $(KUBERNETES)) && ci/kind-node/image $(PREVIOUS) >&2 && \
	ci/kind-node/build-balancer $$image >&2 && \
	$(AUTHZCONF) upgrade --provider kind --control-planes 3 --high-availability --path $(KIND_HA_PATH) --report-dir $(KIND_REPORT) && \
	$(AUTHZCONF) verify $(KIND_REPORT)

.PHONY: kind-kill
kind-kill: KIND_REPORT ?= _output/kind-kill
kind-kill: build ## an upgrade path on a cluster of kind whose API server is killed (PREVIOUS, KUBERNETES, KIND_REPORT)
	@ci/kind-node/install engine
	@eval "$$(ci/kind-node/engine start)" && for minor in $(PREVIOUS) $(KUBERNETES); do ci/kind-node/image $$minor >&2 || exit; done && \
	$(AUTHZCONF) upgrade --provider kind --file ci/paths/kill-apiserver.yaml --report-dir $(KIND_REPORT) && \
	$(AUTHZCONF) verify $(KIND_REPORT)

.PHONY: kind-any-cluster
kind-any-cluster: ## the scenarios that any cluster can run, on a cluster of kind taken as one that exists
	@ci/kind-node/install engine
	@eval "$$(ci/kind-node/engine start)" && image=$$(ci/kind-node/image $(KUBERNETES)) && \
	AUTHZCONF_KIND_NODE_IMAGE=$$image go test -count 1 -timeout 15m -v -run TestKindAnyCluster ./cmd/authzconf

.PHONY: kind-load
kind-load: ## storms on clusters of kind: by pods of an Indexed Job, and from 500 nodes that kwok keeps Ready
	@ci/kind-node/install engine
	@eval "$$(ci/kind-node/engine start)" && image=$$(ci/kind-node/image $(KUBERNETES)) && \
	kwok=$$(go mod download -json sigs.k8s.io/kwok@v0.8.0 | sed -n 's/.*"Dir": "\(.*\)",/\1/p') && \
	AUTHZCONF_KWOK=$$kwok AUTHZCONF_KIND_NODE_IMAGE=$$image go test -count 1 -timeout 30m -v -run 'TestPods|TestKwok' ./loadgen/storm

.PHONY: kind-clusterloader2
kind-clusterloader2: ## clusterloader2 (the program that AUTHZCONF_CLUSTERLOADER names) loads a cluster of kind with three nodes and kwok's
	@ci/kind-node/install engine
	@eval "$$(ci/kind-node/engine start)" && image=$$(ci/kind-node/image $(KUBERNETES)) && \
	kwok=$$(go mod download -json sigs.k8s.io/kwok@v0.8.0 | sed -n 's/.*"Dir": "\(.*\)",/\1/p') && \
	AUTHZCONF_KWOK=$$kwok AUTHZCONF_KIND_NODE_IMAGE=$$image go test -count 1 -timeout 40m -v -run TestOnKind ./ci/clusterloader2

# Where a person's waiting goes. Nothing else should run on the machine.
.PHONY: profile
profile: build ## say where the time of make conformance goes: programs, parts of authzconf, waiting (KUBERNETES)
	@AUTHZCONF_CPU_PROFILE=$(abspath _output/conformance.pprof) $(MAKE) --no-print-directory conformance REPORT_DIR=_output/profile >_output/profile.txt || { cat _output/profile.txt; exit 1; }
	@go run ./ci/profile conformance _output/profile _output/conformance.pprof

# PROFILED is the folder in which make test leaves where its time goes; without it, it leaves nothing.
.PHONY: profile-tests
profile-tests: ## say where the time of make test goes: compiling, linking, control planes, packages
	@rm -rf _output/profile-tests && mkdir -p _output/profile-tests
	@$(MAKE) --no-print-directory test PROFILED=$(abspath _output/profile-tests) >_output/profile-tests/output.txt || { cat _output/profile-tests/output.txt; exit 1; }
	@go run ./ci/profile tests _output/profile-tests

.PHONY: verify
verify: build ## recompute the verdicts of the report from its evidence
	$(AUTHZCONF) verify $(REPORT_DIR)

.PHONY: upgrade
upgrade: build ## upgrade, downgrade, upgrade: every permission on every stage (PREVIOUS, KUBERNETES)
	$(AUTHZCONF) upgrade --path $(PREVIOUS),$(KUBERNETES),$(PREVIOUS)-gate,$(KUBERNETES) --report-dir _output/upgrade
	$(AUTHZCONF) verify _output/upgrade

.PHONY: control-planes
control-planes: build ## build etcd and the kube-apiserver of every version into the cache
	$(AUTHZCONF) control-planes

.PHONY: build
build: ## build _output/authzconf
	@go build -trimpath -buildvcs=false -ldflags '-X main.version=$(VERSION)' -o $(AUTHZCONF) ./cmd/authzconf

# The tests start real control planes. They are built here, where one sees it. What has no goroutines of its
# own, and what asks tens of thousands of questions of what is tested elsewhere, goes without the race
# detector, which makes it four times as slow: PLAIN. What is long, and has its own goroutines, is tried with it by night
# alone: RACED_BY_NIGHT.
MODULE := github.com/authzconf/authzconf
PLAIN := cmd/authzconf|advice(/.*)?|certify(/.*)?|ci/submitted|conformance/matrix|docs|drafts/conditional(/.*)?|drafts/granular|loadgen/(judge|pacer|population|predict|profile)|oracle(/.*)?|reports(/.*)?|scenarios(/.*)?|verdicts(/.*)?|suites

RACED_BY_NIGHT := deputy

# What the gate leaves to the night. OF_KUBERNETES are packages whose tests with real servers show what Kubernetes does,
# whatever authzconf does. REPEATED are packages whose tests with real servers repeat what a stage of
# .ci/run shows on every change (conformance, upgrade, mutants-sample); their other tests are run: SHORT is both. NIGHTLY is a
# regular expression of the tests in ci/nightly-tests.txt; ci/README.md says what is tested when.
OF_KUBERNETES := drafts/conditional/today
REPEATED := ci/mutants|conformance/upgrade|suites
SHORT := $(OF_KUBERNETES)|$(REPEATED)
NIGHTLY := $(shell ci/nightly-tests)

# The patches of findings: the gate applies them, and looks for the places of the faults; the night also runs Kubernetes' tests
# with the patches, and the whole suite on kube-apiservers that have them.
FIXES_TESTS := ^(TestFixes|TestPatches|TestPatchTests|TestFaultsFindPlaces)$$

# $(call packages,CONDITION): those of ours whose path below the module fits an awk condition on $$1.
packages = $$(go list ./... | sed 's,^$(MODULE)/*,,' | awk '$(1) { print "./" $$1 }')

# $(call profiled,PART): the flags by which go test leaves where the time of a part goes.
profiled = $(if $(PROFILED),-debug-actiongraph=$(PROFILED)/$(1).json -exec '$(PROFILED)/profile run $(PROFILED)')

# Tests are linked without the tables for debuggers, which takes three quarters of the time; stack traces need none. go vet looks at them
# in test-vet. One package more than there are processors is tested at a time, because many tests wait for API servers.
GO_TEST := go test -vet=off -ldflags=-w -p $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

.PHONY: test
test: build ## vet, and run all tests that are not for the night, those against real programs too
	$(AUTHZCONF) control-planes --kubernetes $(KUBERNETES)
	@[ -z "$(PROFILED)" ] || go build -o $(PROFILED)/profile ./ci/profile
	@$(MAKE) --no-print-directory --keep-going $(TEST_PARTS)

# All parts are run, even if one fails.
TEST_PARTS := test-vet test-race test-plain test-repeated test-patches test-example
.PHONY: $(TEST_PARTS)
test-vet:
	go vet ./...
test-race:
	AUTHZCONF_SAMPLE=$(SEED) $(GO_TEST) $(RACE) -timeout 30m -skip '$(NIGHTLY)' $(TESTFLAGS) $(call profiled,race) $(call packages,$$1 !~ "^($(PLAIN)|$(RACED_BY_NIGHT)|$(SHORT))$$")
test-plain:
	AUTHZCONF_SAMPLE=$(SEED) $(GO_TEST) -timeout 30m -skip '$(NIGHTLY)' $(TESTFLAGS) $(call profiled,plain) $(call packages,$$1 ~ "^($(PLAIN)|$(RACED_BY_NIGHT))$$" && $$1 !~ "^($(SHORT))$$")
test-repeated:
	$(GO_TEST) -short $(TESTFLAGS) $(call profiled,repeated) $(call packages,$$1 ~ "^($(SHORT))$$")
test-patches:
	$(GO_TEST) -timeout 30m -skip '$(NIGHTLY)' -run '$(FIXES_TESTS)' $(TESTFLAGS) $(call profiled,patches) ./ci/mutants
test-example:
	cd ci/example && go vet ./... && $(GO_TEST) -timeout 20m $(TESTFLAGS) ./suite

.PHONY: test-nightly
test-nightly: build ## all tests, faulty authorizers all of them, policy engines, proxies, the example, and a minute for each fuzz test
	$(AUTHZCONF) control-planes
	AUTHZCONF_CASES=1000 AUTHZCONF_FAULTY=all go test $(RACE) -timeout 90m -skip '$(FIXES_TESTS)' $(TESTFLAGS) $(call packages,$$1 !~ "^($(PLAIN))$$" || $$1 == "suites")
	PATH="$$(ci/prometheus):$$PATH" AUTHZCONF_FAULTY=all go test -timeout 90m $(TESTFLAGS) $(call packages,$$1 ~ "^($(PLAIN))$$" && $$1 != "suites")
	go test -timeout 90m -run '$(FIXES_TESTS)' $(TESTFLAGS) ./ci/mutants
	AUTHZCONF_FAULTY=all $(MAKE) --no-print-directory engines
	$(MAKE) --no-print-directory subjects example
	cd ci/enforcing-apiserver && go vet ./... && go test -timeout 20m -run TestReload $(TESTFLAGS) .
	$(MAKE) --no-print-directory fuzz FUZZTIME=1m

.PHONY: submitted
submitted: ## check the reports in reports/submitted, and the table of them (docs/submitted.md)
	ci/submitted/check

.PHONY: image
image: ## write the container image of authzconf for jobs of ci/certify (_output/authzconf-image.tar)
	@mkdir -p _output
	ci/certify/image latest _output/authzconf-image.tar

RELEASE_DIR ?= _output/release
.PHONY: release
release: ## write static programs for linux and darwin, an image, their modules as SPDX, and SHA256SUMS (VERSION, RELEASE_DIR, SIGN_KEY)
	SIGN_KEY='$(SIGN_KEY)' ci/release $(VERSION) $(RELEASE_DIR)

# Another folder, and nothing that is compiled already: what a stranger would do.
.PHONY: release-again
release-again: ## build the release once more, from nothing, and compare the digests (PLATFORMS: of these alone, without the image)
	@set -e; work=$$(mktemp -d); trap 'chmod -R u+w "$$work"; rm -rf "$$work"' EXIT; \
	git clone -q . "$$work/source"; \
	GOCACHE=$$work/cache "$$work/source/ci/release" $(VERSION) "$$work/release" $(PLATFORMS); \
	cd $(RELEASE_DIR) && $(if $(PLATFORMS),grep -v _image.tar,cat) "$$work/release/SHA256SUMS" | sha256sum -c -

.PHONY: transcripts
transcripts: ## compare the vectors of certification with the access reviews in a report (REPORT_DIR)
	AUTHZCONF_REPORTS=$(abspath $(REPORT_DIR)) go test -count 1 -v -run TestTranscriptsAreCovered ./certify

# Policy engines are in a module of their own: heavy, and only ever tested with.
.PHONY: engines
engines: ## certify Cedar, Open Policy Agent and OpenFGA with the policy as certify policy writes it
	cd ci/engines && go vet ./... && go test -timeout 20m $(TESTFLAGS) ./...

# Proxies as they are commonly written, and a product, in modules of their own.
CLIENTS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/authzconf/clients
.PHONY: subjects
subjects: build ## try authzconf deputy --proxy on proxies as they are commonly written (_output/subjects)
	@! command -v npm >/dev/null || npm install --silent --no-audit --no-fund --prefix $(CLIENTS) @kubernetes/client-node@1.4.0 || echo 'the JavaScript client is left out: npm could not install it'
	@set -e; export CLIENT_NODE=$(CLIENTS); for module in ci/subjects ci/subjects/tailscale; do \
		(cd $$module && go vet ./... && AUTHZCONF=$(abspath $(AUTHZCONF)) SUBJECTS=$(abspath _output/subjects) go test -count 1 -timeout 20m $(TESTFLAGS) ./...); \
	done

# A module that imports ours, as an author's does.
.PHONY: example
example: ## test authorizers as their authors would (docs/in-your-tests.md)
	cd ci/example && go vet ./... && go test -timeout 20m $(TESTFLAGS) ./...

.PHONY: faulty-authorizers
faulty-authorizers: ## certify every faulty authorizer, the reference on 20 seeds, RBAC and policy engines, at length
	AUTHZCONF_FAULTY=all go test -count 1 -timeout 40m -v -run 'TestGeneratedAreRejected|TestDevelopersAreRejected|TestDifferentlyRight|TestSafe|TestFaultyAuthorizersAreRejected|TestReferenceIsAccepted|TestRBACIsCertified|TestHiddenFaults|TestReferenceInCluster|AdversariesAreRejected' ./certify
	go test -count 1 -timeout 20m -v -run TestDecisionMutants ./ci/mutants
	cd ci/engines && AUTHZCONF_FAULTY=all go test -count 1 -timeout 20m ./...

.PHONY: faulty-conditional-authorizers
faulty-conditional-authorizers: ## certify every faulty conditional authorizer, the reference on 20 seeds; mutants of the library
	AUTHZCONF_FAULTY=all go test -count 1 -timeout 20m -run 'AreRejected|TestReferenceIsAccepted' ./drafts/conditional/certification
	go test -count 1 -timeout 20m -v -run TestLibraryMutants ./ci/mutants

# Each round starts the servers anew and draws the order. benchstat says what differs by more than chance.
ROUNDS ?= 12

.PHONY: conditional-cost
conditional-cost: ## measure what conditional authorization costs beside admission policies (ROUNDS)
	@mkdir -p _output/bin && go test -c -o _output/bin/conditional-today ./drafts/conditional/today
	@for i in $$(seq $(ROUNDS)); do _output/bin/conditional-today -test.run '^$$' -test.bench Cost -test.benchtime 100x || exit; done > _output/conditional-cost.txt
	go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da -row /of -col '/by@(policy nothing compiled-before compiled-each-time webhook)' _output/conditional-cost.txt
	go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da -row /policies -col '/by@(conditions every-policy)' _output/conditional-cost.txt
	go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da -row /bytes -col '/by@(not-judged admitted refused-in-admission refused-at-once)' _output/conditional-cost.txt

# It is built as a test program is, from a module of its own.
.PHONY: enforcing-apiserver
enforcing-apiserver: ## build a kube-apiserver with a small enforcer of ours, to try conditions run --api-server on
	cd ci/enforcing-apiserver && CGO_ENABLED=0 go test -c -trimpath -vet=off -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=v'$$(go list -m -f '{{.Version}}' k8s.io/kubernetes | tr -d v)'+authzconf-enforcer' -o $(abspath _output/enforcing-apiserver) .

.PHONY: faulty-enforcers
faulty-enforcers: ## run every faulty enforcer of granular verbs (KEP-3617)
	AUTHZCONF_FAULTY=all go test -count 1 -timeout 20m -run TestFaultyEnforcersAreRejected ./drafts/granular

.PHONY: bench
bench: ## run the benchmarks
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-loadgen
bench-loadgen: ## measure the load generator beside fortio, h2load and k6 (BENCHFLAGS="-repeats 2" for a quick look)
	ci/bench-loadgen $(BENCHFLAGS)

.PHONY: load-results
load-results: build ## measure what docs/results reports and write it, 2 hours; goes on where it ended (PARTS="reviews events authorizers daemonset three-servers latency", SIZES="100 1000", FULL=1, AGAIN=1)
	ci/load-results/measure $(PARTS)

# A million requests take about 40 minutes. The broken servers that a storm has to fail are those of ci/mutants/faults.yaml.
.PHONY: load-million
load-million: build ## a million requests, in which one answer for somebody else fails (KIND_REPORT)
	$(AUTHZCONF) load --profile ci/load-profiles/million.yaml --report-dir $(or $(KIND_REPORT),_output/million)

.PHONY: faults
faults: ## build the broken kube-apiservers of ci/mutants/faults.yaml into _output/faults (FAULT=NAME for one), for --api-server
	FAULTS=$(abspath _output/faults) go test -count 1 -timeout 1h -run '^TestFaults$$/^$(FAULT)' ./ci/mutants

# Tests for Kubernetes' own repository, a module of their own (upstream/README.md).
.PHONY: upstream-e2e
upstream-e2e: build ## run the tests for Kubernetes' own repository on a local control plane
	upstream/e2e local

.PHONY: upstream-kind
upstream-kind: ## the same on a cluster of kind (KUBERNETES)
	@ci/kind-node/install engine
	@eval "$$(ci/kind-node/engine start)" && image=$$(ci/kind-node/image $(KUBERNETES)) && upstream/e2e kind $$image

.PHONY: upstream-cycles
upstream-cycles: ## the same for gate on, off, on and for upgrade, downgrade, upgrade, on hack/local-up-cluster.sh (PREVIOUS, KUBERNETES)
	@etcd=$$(ci/kind-node/components etcd) && current=$$(ci/kind-node/components kubernetes-$(KUBERNETES)) && previous=$$(ci/kind-node/components kubernetes-$(PREVIOUS)) && \
	PATH=$$etcd:$$PATH upstream/cycles $$current $$previous

.PHONY: upstream-patches
upstream-patches: ## write them as patches into _output/upstream/patches, apply these, and compile what they add
	upstream/patches check

.PHONY: upstream-mutants
upstream-mutants: mutants-tests ## count how many broken API servers they catch, and write upstream/mutants.md (UPSTREAM_SAMPLE, UPSTREAM_SEED)
	upstream/e2e build
	UPSTREAM_E2E=$(abspath _output/upstream/e2e.test) UPSTREAM_PAGE=upstream/mutants.md $(MUTANTS) '^TestUpstream$$' -sample $(or $(UPSTREAM_SAMPLE),60) -seed $(or $(UPSTREAM_SEED),1)

.PHONY: bench-advise
bench-advise: build ## measure authzconf advise on generated audit logs of 1 GB (BENCHFLAGS="-size 100" for a quick look)
	@go test -c -o _output/bin/bench-advise ./engine/auditlog
	AUTHZCONF_BENCH=$(AUTHZCONF) _output/bin/bench-advise -test.run TestBenchAdvise -test.timeout 1h $(BENCHFLAGS)

.PHONY: fuzz
fuzz: ## run each fuzz test for FUZZTIME
	@set -e; grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort | while IFS=: read -r file func; do \
		(set -x; go test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s "$$(dirname "$$file")"); \
	done

# Both build their kube-apiserver in the cache: the first time minutes, at once from then on. The tests are compiled
# first, so that it is they whom an interruption reaches. `make mutants MUTANTSFLAGS=-h` lists their flags.
MUTANTS := _output/bin/mutants -test.v -test.timeout 0 -test.run

.PHONY: mutants-tests
mutants-tests:
	@mkdir -p _output/bin && go test -trimpath -c -o _output/bin/mutants ./ci/mutants

.PHONY: server-coverage
server-coverage: mutants-tests ## count which statements of the API server's impersonation the suite reaches
	$(MUTANTS) TestServerCoverage -coverage docs/server-coverage.md

.PHONY: explore-coverage
explore-coverage: mutants-tests ## list which of these statements generated cases do not reach (EXPLORE_CASES of each of 3 seeds), and let what reached more guide them
	EXPLORE_CASES=$(or $(EXPLORE_CASES),2000) EXPLORE_CORPUS=oracle/cases/corpus.yaml $(MUTANTS) TestExploreCoverage

.PHONY: mutants
mutants: mutants-tests ## run the suite against broken API servers (MUTANTSFLAGS="-sample 25 -seed 7" for a few)
	$(MUTANTS) TestMutants -all $(MUTANTSFLAGS)

# The seed of a sample is the number of commits: every commit tries others, and
# the same ones whenever it is tried.
SAMPLE ?= 9
SEED   ?= $(or $(shell git rev-list --count HEAD 2>/dev/null),1)

.PHONY: mutants-sample
mutants-sample: mutants-tests ## run the suite against some of the broken API servers (SAMPLE, SEED)
	$(MUTANTS) TestMutants -sample $(SAMPLE) -seed $(SEED) -output _output/mutants-sample

# A finding without a fix would be proved by nothing that runs.
.PHONY: has-fix
has-fix:
	@test -z '$(FINDING)' || test -f 'docs/findings/patches/kubernetes/$(FINDING).patch' || { \
		echo 'FINDING=$(FINDING): there is no fix of it; there are those of' $$(basename -s .patch docs/findings/patches/kubernetes/*.patch) >&2; exit 2; }

.PHONY: fixed
fixed: build has-fix ## build a kube-apiserver with the patch of a finding, and see on it that the finding is gone (FINDING)
	@: $(or $(FINDING),$(error FINDING is not set: make fixed FINDING=ID))
	FIXES=$(abspath _output/fixes) go test -count 1 -timeout 1h -run '^TestFixed$$/^$(FINDING)$$' ./ci/mutants
	TEST_ASSET_KUBE_APISERVER=_output/fixes/$(FINDING)/kube-apiserver $(AUTHZCONF) reproduce $(FINDING); [ $$? -eq 1 ]

.PHONY: document-patches
document-patches: ## apply the patches of documents to a clone of kubernetes/website (DOCUMENTS, the folder with it)
	@: $(or $(DOCUMENTS),$(error DOCUMENTS is not set: make document-patches DOCUMENTS=FOLDER))
	DOCUMENTS=$(abspath $(DOCUMENTS)) go test -count 1 -v -run '^TestDocumentPatches' ./verdicts/findings

.PHONY: mutants-arguments
mutants-arguments: mutants-tests ## attack half of the mutants that are argued to be equivalent by generated cases (ARGUED_CASES of them each, SEED)
	ARGUED_CASES=$(or $(ARGUED_CASES),200) $(MUTANTS) TestArgumentsHold -seed $(SEED)

# The first time it compiles a kube-apiserver for each patch.
.PHONY: fixes
fixes: has-fix ## prove the patches of findings: git am, go vet, Kubernetes' own tests, and the whole suite with each (FINDING for one)
	go test -count 1 -timeout 2h -v -run '$(FIXES_TESTS)$(if $(FINDING),/^$(FINDING)$$)' ./ci/mutants

.PHONY: kind-node-image
kind-node-image: ## build the kind node image of KUBERNETES without a container registry (Debian, root)
	ci/kind-node/install
	ci/kind-node/build $(KUBERNETES)

# `go tool` keeps the program it builds in Go's build cache.
.PHONY: lint
lint: ## check the code and its import rules (golangci-lint, pinned in ci/tools)
	go tool -modfile=ci/tools/go.mod golangci-lint run

.PHONY: clean
clean: ## remove _output/
	rm -rf _output
