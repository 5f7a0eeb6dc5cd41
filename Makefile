SHELL := /bin/bash -o pipefail
BIN := $(CURDIR)/.bin
export PATH := $(BIN):$(PATH)

# Without paths in what is built, clones of the same commit share the build cache.
export GOFLAGS := $(GOFLAGS) -trimpath

# The tools that make generated code and check it, pinned.
BUF := github.com/bufbuild/buf/cmd/buf@v1.69.0
PROTOC_GEN_GO := google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11
PROTOC_GEN_GO_GRPC := google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.1
PROTOC_GEN_CONNECT_GO := connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.21.1
# The contract of the rules in our contracts.
PROTOVALIDATE := github.com/bufbuild/protovalidate@v1.2.2
RULES := $(BIN)/protovalidate/buf/validate/validate.proto
CYCLONEDX_GOMOD := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.1.4
GORELEASER := github.com/goreleaser/goreleaser/v2@v2.12.7
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.2

.PHONY: help dev test units torture setup lint generate check bench bench-peers e2e fuzz sbom vulncheck release-check

help: ## Show what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

dev: ## Start all four services in one process, with demo agents
	go run ./cmd/holdfast dev

# One half after the other: the end-to-end half has clients that act in the middle of an answer, and needs a machine
# that is not busy with other things. So only two of its packages run at a time. The worker's tests kill an executor
# at every moment, and the gateway's test of rights sends its 30,000 requests, only without the detector.
# -vet=all checks what go vet checks, without compiling anew.
test: setup ## Install what the tests need and run every test
	@$(MAKE) --no-print-directory --keep-going units e2e

# SQLite in Go is translated C. The race detector would slow it down five times and find nothing of ours in it. The
# checks of unsafe pointers that come with the detector are left out: no hand-written code uses unsafe pointers.
# Each process would sleep for a second at its end, to find late races.
# -cpu 1: in a synctest bubble, two timers that fire at once on two processors crash the detector of Go 1.26
# (go.dev/issue/78156). The packages still run three at a time.
RACE := -race -cpu 1 -gcflags=all=-d=checkptr=0 '-gcflags=modernc.org/...=-race=false -d=checkptr=0'
units: export GORACE := atexit_sleep_ms=0
units: export GOGC := 300

units: ## Run only the tests inside the processes, with the race detector
	go test $(RACE) -vet=all -shuffle=on -p 3 -timeout 30m . ./deploy/... ./examples/... ./pkg/... ./proto/... ./services/...

e2e: setup ## Run only the black-box tests over real processes
	go test -count=1 -vet=all -shuffle=on -p 2 -timeout 30m ./cmd/... ./e2e/... ./services/executor/internal/worker
	go test -count=1 -vet=all -timeout 30m -run '^TestNobodyReaches' ./services/gateway
	cd deploy/helm && go test -count=1 ./...
	cd bench && go vet ./... && go test -count=1 ./...

# One package at a time: each keeps the machine busy.
torture: setup ## Run the tests under faults and of random histories for long, up to an hour
	go test -count=1 -p 1 -timeout 60m ./e2e/faults -faults.sessions=200 -faults.window=5m -faults.copyage=2m
	go test -count=1 -timeout 60m ./e2e/history -history.window=5m
	go test -count=1 -timeout 60m ./e2e/rolling -rolling.restarts=50
	go test -count=1 -timeout 60m ./services/executor/internal/model/openai ./services/executor/internal/model/anthropic ./services/executor/internal/model/gemini -run '^TestMutated' -mutations=10000
	go test -count=1 -timeout 60m ./e2e/console -run '^TestALongRun' -console.steps=10000
	go test -count=1 -timeout 60m ./e2e/crashmatrix -crashmatrix.every -ledger.kills=400 -ledger.window=0
	go test -count=1 -timeout 60m ./e2e/endpoint -run '^TestTheOutsideWorld' -endpoint.kills=500 -endpoint.window=0
	go test -count=1 -timeout 60m $$(grep -rl --include='*_test.go' 'rapid\.Check(' cmd pkg services | xargs -n1 dirname | sort -u | sed 's|^|./|') -rapid.checks=2000

# The seeds of all fuzz targets run as tests in make test. An input that breaks a target is kept in its testdata/fuzz.
# Go sometimes fails at the end of the time with "context deadline exceeded" alone, which is no finding.
fuzz: FUZZTIME ?= 30s
fuzz: ## Fuzz every target for FUZZTIME, 30s if not set; PKG=./a/... for some of them
	@grep -rl --include='*_test.go' '^func Fuzz' $(patsubst %/...,%,$(or $(PKG),cmd pkg proto services)) | xargs -n1 dirname | sort -u | while read -r dir; do \
		grep -ho '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go | cut -c6- | while read -r target; do \
			echo "$$dir $$target"; go test ./$$dir -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) </dev/null | tee fuzz.out; \
			[ $${PIPESTATUS[0]} = 0 ] || grep -A1 '^--- FAIL' fuzz.out | grep -q '^    context deadline exceeded' || exit 1; \
		done || exit 1; \
	done

setup: ## Install what the tests need: Postgres, npm packages, Chromium
	@./e2e/setup

lint: $(BIN)/golangci-lint $(BIN)/buf $(RULES) ## Check style and contracts
	golangci-lint run ./...
	buf lint

generate: $(BIN)/buf $(RULES) $(BIN)/protoc-gen-go $(BIN)/protoc-gen-go-grpc $(BIN)/protoc-gen-connect-go ## Make the generated code anew
	buf generate --template buf.gen.grpc.yaml
	buf generate --template buf.gen.connect.yaml --path proto/holdfast/agent
	go test ./services/gateway -run '^TestTheOpenAPIDocumentDescribesTheRegisteredRoutes$$|^TestTheTableOfThePublicAPIIsCurrent$$' -update
	go test ./cmd/holdfast -run '^TestTheListOfEnvironmentVariablesIsCurrent$$|^TestTheListOfMetricsIsCurrent$$' -update
	go test ./services/executor/internal/model/profile -run '^TestTheTableOfProfilesIsCurrent$$' -update
	[ -d clients/typescript/node_modules ] || npm --prefix clients/typescript ci
	npm --prefix clients/typescript run generate
	python3 clients/python/generate.py
	[ -d clients/console/node_modules ] || npm --prefix clients/console ci
	npm --prefix clients/console run build

check: lint generate ## Everything that has to be green before a change lands
	@test -z "$$(gofmt -l . | tee /dev/stderr)"
	@git diff --exit-code -- proto services/gateway/internal/openapi services/gateway/internal/page clients docs/api.md || (echo "generated code was not up to date" >&2; exit 1)
	$(MAKE) test

bench: setup ## Measure, beside raw baselines in the same run
	go test -run "^$$" -bench . -benchtime 1x -timeout 40m ./e2e/bench

sbom: ## Write the components of the binaries to sbom.cdx.json, in the format of CycloneDX
	go run $(CYCLONEDX_GOMOD) mod -json -licenses -output sbom.cdx.json

# govulncheck ends with 3 if it has found something.
vulncheck: $(BIN)/govulncheck ## Look for known vulnerabilities; needs the network
	@govulncheck ./... || { code=$$?; [ $$code = 3 ] || echo "the check did not run: is the database https://vuln.go.dev reachable?" >&2; exit $$code; }

# Not a part of make test, because it compiles goreleaser for minutes.
release-check: ## Check the description of the release archives; needs the network
	go run $(GORELEASER) check

bench-peers: ## Measure the same agent on Holdfast and on its peers; ARGS=-quick for a first look
	cd bench && go run . -details $(ARGS)

$(BIN)/buf:
	GOBIN=$(BIN) go install $(BUF)
$(BIN)/protoc-gen-go:
	GOBIN=$(BIN) go install $(PROTOC_GEN_GO)
$(BIN)/protoc-gen-go-grpc:
	GOBIN=$(BIN) go install $(PROTOC_GEN_GO_GRPC)
$(BIN)/protoc-gen-connect-go:
	GOBIN=$(BIN) go install $(PROTOC_GEN_CONNECT_GO)
$(RULES):
	mkdir -p $(@D)
	install -m 644 "$$(go mod download -json $(PROTOVALIDATE) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/proto/protovalidate/buf/validate/validate.proto" $@
$(BIN)/govulncheck:
	GOBIN=$(BIN) go install $(GOVULNCHECK)
$(BIN)/golangci-lint:
	GOBIN=$(BIN) go install $(GOLANGCI_LINT)
