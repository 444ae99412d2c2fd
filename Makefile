# SPDX-License-Identifier: Apache-2.0

# The version in the binaries: the last tag and the distance to it; the commit alone if there is no
# tag; "devel" outside git.
VERSION = $(or $(shell git describe --tags --always --dirty 2>/dev/null),devel)
PURE = $(addprefix ./,$(shell sed 's/\#.*//' .ci/pure))
# The race detector needs cgo, which needs a C compiler.
RACE = $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)
# The limit is for a package that hangs. It leaves time for a slow one: with twenty busy loops on
# the machine, the tests get a tenth of two cores.
PATIENCE = 60m
BENCHMARKED = $(sort $(dir $(shell grep -rl --include='*_test.go' '^func Benchmark' [a-z]*)))
MODULE = github.com/meshcni/meshcni
BUILD = CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X $(MODULE)/internal/version.version=$(VERSION)' -o $(OUT)/
# OUT is the output directory of make build.
OUT ?= bin
SCRIPTS = .ci/prerequisites .ci/progress .ci/run $(wildcard testdata/machine/*)
GOLANGCI_LINT = go tool -modfile=$(CURDIR)/.ci/tools/go.mod golangci-lint

# An ordinary user's PATH lacks the directories of nft and iptables.
export PATH := $(PATH):/usr/sbin:/sbin

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## the plugin, the daemon and ambient mode on this machine: no cluster, no root, nothing installed; POD=file.yaml takes a pod of yours
	@.ci/progress ./examples/demo
	@CGO_ENABLED=0 .ci/progress ./examples/install-cni ./examples/istio-cni ./examples/node-ambient
	go run ./examples/demo

.PHONY: test
test: ## all tests, with the race detector; installs what they need if it may; a skipped test is a failure
	@.ci/prerequisites nft iptables newuidmap gcc haproxy
	go test -C .ci/tools ./...
	go test -C examples/e2e ./chart ./internal/...
	go run -C .ci/tools ./noskips -C $(CURDIR) -race -shuffle=on -timeout $(PATIENCE) ./...

.PHONY: test-pure
test-pure: ## the tests of the pure packages; needs only Go, on any operating system
	go test $(RACE) -shuffle=on $(PURE)

.PHONY: lint
lint: ## the linters of .ci/tools, go vet among them; built from source the first time
	@.ci/prerequisites shellcheck
	shellcheck $(SCRIPTS)
	go run -C .ci/tools ./words $(CURDIR)
	go mod tidy -diff
	go mod tidy -C .ci/tools -diff
	go mod tidy -C examples/e2e -diff
	go mod tidy -C examples/e2e/kubernetes -diff
	go mod tidy -C examples/e2e/runtime -diff
	$(GOLANGCI_LINT) run ./...
	go vet -tags iptables ./interception/plugin ./examples/istio-cni
	cd .ci/tools && go tool golangci-lint run --config ../../.golangci.yml ./...
	cd examples/e2e && $(GOLANGCI_LINT) run --config ../../.golangci.yml --disable paralleltest ./...

.PHONY: build
build: ## the binaries for a node and meshplan, static and stripped, into bin/; the plugin also with iptables, for nodes that need it
	$(BUILD)istio-cni-iptables -tags iptables ./examples/istio-cni
	$(BUILD) ./examples/istio-cni ./examples/linkerd-cni ./examples/install-cni ./examples/node-watcher ./examples/node-ambient ./examples/mesh-validator ./examples/meshplan

.PHONY: image
image: ## the node image for amd64 and arm64, without registry or Docker, as an OCI archive, with SBOMs and sums, into bin/release
	@for architecture in amd64 arm64; do \
		GOOS=linux GOARCH=$$architecture $(MAKE) --no-print-directory build OUT=bin/linux-$$architecture || exit 1; \
	done
	cd examples/e2e && go run ./release -version '$(VERSION)' -binaries ../../bin -to ../../bin/release

# With these flags of GNU tar, the same files make the same archive.
ARCHIVE = tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -c
.PHONY: release
release: ## everything that is shipped, into bin/release: the binaries for Linux, meshplan for macOS too, and the output of make image
	@mkdir -p bin/release
	@for architecture in amd64 arm64; do \
		GOOS=linux GOARCH=$$architecture $(MAKE) --no-print-directory build OUT=bin/linux-$$architecture && \
		GOOS=darwin GOARCH=$$architecture $(BUILD:$(OUT)/=bin/darwin-$$architecture/) ./examples/meshplan && \
		for system in linux darwin; do \
			$(ARCHIVE) -C bin/$$system-$$architecture . | gzip -n > bin/release/meshcni-$$system-$$architecture.tar.gz || exit 1; \
		done || exit 1; \
	done
	@$(MAKE) --no-print-directory image

# e2e-prepared provides what the end-to-end tests need: programs of the machine, two versions of the
# binaries, and what prepare builds.
E2E = cd examples/e2e && ../../bin/e2e/e2e.test -test.v -test.timeout 0 -test.parallel 4
.PHONY: e2e-prepared
e2e-prepared:
	@.ci/prerequisites runc iptables nft
	@$(MAKE) --no-print-directory build OUT=bin/e2e/e2e-1 VERSION=e2e-1
	@$(MAKE) --no-print-directory build OUT=bin/e2e/e2e-2 VERSION=e2e-2
	cd examples/e2e && go run ./prepare && go test -c -o ../../bin/e2e/ .

# E2E_LONG are scenarios that take minutes, and whose faults other tests find, too: those of
# node-watcher (silence), of conflist/reconciler, TestStartedWithoutThePlugin* and e2e-soak (a
# hostile neighbour), of the dataplanes (connections) and examples/internal/ambientsoak (another
# proxy, no API server).
E2E_LONG = TestAPIServerAwayForLong|TestAmbientAPIServerAway|TestHostileNeighbour(Reported)?|TestManyConnections|TestAmbientProxyReplaced
E2E_SKIP = ^TestSoak$$$(if $(ALL)$(value RUN),,|^($(E2E_LONG))$$)
.PHONY: e2e
e2e: e2e-prepared ## the product on a real Kubernetes with two nodes, as root; SHORT=1 only capture, upgrade and uninstall; RUN=TestX one test; KEEP=1 keeps the cluster
	$(E2E) -test.skip '$(E2E_SKIP)' $(if $(SHORT),-test.short) $(if $(value RUN),-test.run '$(value RUN)') $(if $(KEEP),-keep)

.PHONY: e2e-all
e2e-all: ## make e2e with the scenarios that take minutes, and whose faults other tests find, too
	@$(MAKE) --no-print-directory e2e ALL=1

.PHONY: bench-e2e
bench-e2e: PODS ?= 100
bench-e2e: e2e-prepared ## the time that pods take to start with the plugin in the chain and without, PODS=100 each, alternating
	$(E2E) -test.run 'TestPodStartLatency$$' -latency-pods $(PODS)

.PHONY: e2e-soak
e2e-soak: MINUTES ?= 20
e2e-soak: e2e-prepared ## a day in production: pods come and go for MINUTES=20 while faults happen, chosen by SEED=; report in bin/e2e/soak.txt
	$(E2E) -test.run '^TestSoak$$|^TestHostileNeighbour' -soak $(MINUTES)m $(if $(SEED),-soak-seed $(SEED)) $(if $(KEEP),-keep)

.PHONY: cluster
cluster: e2e-prepared ## starts the Kubernetes of the end-to-end tests, to play with, until Ctrl-C
	$(E2E) -cluster-only

.PHONY: matrix
matrix: ## the tables of ambient mode with real packets: which form of capture, dataplane, way and proxy was tried, and why a cell is missing
	@.ci/prerequisites nft iptables newuidmap gcc haproxy
	go test ./ambient ./ambient/agent -count=1 -v -run 'TestNodeCapture$$|TestNodes$$'

.PHONY: soak
soak: N ?= 10000
soak: SEED ?= 1000
soak: ## random redirects, random routers and real packets, each kernel backend against Trace: N=10000 of each, from SEED=1000 on; then a hundred changes of a node's proxy under load, and 200 agents killed during one
	@.ci/prerequisites nft iptables newuidmap gcc
	go test ./interception/nftables ./interception/iptables -count=1 -v -timeout 120m -run 'TestAgreesWithTrace$$' -args -pairs $(N) -seed $(SEED)
	go test ./interception/dataplanetest -count=1 -v -timeout 120m -run 'TestForwardingAgreesWithTrace$$' -args -worlds $(N) -world-seed $(SEED)
	go test ./ambient/agent/nodemode -count=1 -v -timeout 120m -run 'TestProxyIsReplaced$$|TestKilled$$' -args -replacements 100 -kills 200

# The race detector would slow down the programs that are measured here; make test runs them with it.
.PHONY: ambient-soak
ambient-soak: MINUTES ?= 30
ambient-soak: PODS ?= 200
ambient-soak: ## a node in ambient mode on which PODS=200 come and go for MINUTES=30 while everything fails that can, chosen by SEED=
	@.ci/prerequisites nft newuidmap gcc
	go test ./examples/internal/ambientsoak -count=1 -v -timeout 0 -args -minutes $(MINUTES) -pods $(PODS) -within 5s $(if $(SEED),-seed $(SEED))

.PHONY: bench
bench: ## benchmarks: costs as ratios, measured side by side
	go test -run '^$$' -bench . -benchmem $(addprefix ./,$(BENCHMARKED))
