# Trimtab's everyday commands. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

UV_VERSION := 0.13.8
TOOLS := .tools
UV := $(TOOLS)/bin/uv
BIN := .venv/bin
# Processes that run tests side by side (more than two cores: much of a test waits); 0: this one, a test after another.
LANES ?= 3
# What took long to make outlives a clone: types that mypy inferred are valid wherever the sources are the same.
MYPY_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/trimtab/mypy
MEMBERS := proto netmon trainer operator
MANIFESTS := pyproject.toml $(MEMBERS:%=%/pyproject.toml)
LOCAL := trimtab trimtab-api trimtab-netmon trimtab-operator
# Package registries fail for a minute now and then: pip and uv wait longer after each try, some four minutes in all.
export PIP_RETRIES ?= 10
export UV_HTTP_RETRIES ?= 10

.PHONY: help
help: ## List the commands
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Setting up ---------------------------------------------------------------------------------------

$(UV):
	@scripts/debian-packages python3-venv
	@python3 -m venv $(TOOLS)
	@$(TOOLS)/bin/pip install --quiet uv==$(UV_VERSION)

.venv/.ready: requirements.lock $(MANIFESTS) | $(UV)
	@echo "setting up .venv from requirements.lock (PyTorch alone is some 5 GB the first time)"
	@test -x $(BIN)/python || $(UV) venv --quiet --python 3.11 .venv
	@$(UV) pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps $(MEMBERS:%=--editable ./%)
	@touch $@

.PHONY: setup
setup: .venv/.ready ## Install everything the other commands need
	@scripts/debian-packages iperf3 iputils-ping iproute2 gcc libc6-dev

.PHONY: lock
lock: $(UV) ## Bring requirements.lock up to date with the manifests (UPGRADE=1: newest versions)
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  $(LOCAL:%=--no-emit-package %) $(if $(UPGRADE),--upgrade) --custom-compile-command "make lock" \
	  pyproject.toml --group dev -o requirements.lock

.PHONY: generate
generate: setup ## Regenerate what is generated: gRPC stubs, CRD schema, reference docs, dashboards
	$(BIN)/python scripts/generate

.PHONY: dist
dist: setup ## Wheels of all four parts, in dist/
	@rm -rf dist
	@for member in $(MEMBERS); do $(UV) build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir dist $$member; done
	@ls dist

.PHONY: dist-test
dist-test: dist ## Install and train with them in a clean environment, beside the oldest torch they claim (3 GB downloaded)
	@scripts/test-wheels $(TORCH)

.PHONY: images
images: ## Container images (docker, or buildah as root): make images [REGISTRY=R PUSH=1] [IMAGES="operator netmon"] [BASE=IMAGE]
	@scripts/images $(BASE:%=--base=%) $(REGISTRY:%=--registry=%) $(if $(PUSH),--push) $(IMAGES)

.PHONY: image-archives
image-archives: ## The same as archives under ~/.cache/trimtab/images, which `ctr images import` takes (paths on stdout)
	@scripts/images --archive $(BASE:%=--base=%) $(IMAGES)

# Using --------------------------------------------------------------------------------------------

.PHONY: demo
demo: setup ## The main job: adaptive against dense training on a network that changes
	$(BIN)/trimtab compare examples/digits.yaml --network examples/networks/changing.yaml \
	  --plans adaptive,dense --out runs/demo

.PHONY: pictures
pictures: demo ## The documentation's pictures, of the demo's runs: docs/pictures (Chromium)
	@scripts/debian-packages chromium
	$(BIN)/python scripts/pictures runs/demo docs/pictures

.PHONY: bench
bench: setup ## Kernels, collectives and whole steps, as JSON under runs/bench
	@mkdir -p runs/bench
	$(BIN)/trimtab bench kernels --json > runs/bench/kernels.json
	$(BIN)/trimtab bench collectives --json > runs/bench/collectives.json
	$(BIN)/trimtab bench step --json > runs/bench/step.json

.PHONY: benchmarks
benchmarks: setup ## What else can be measured, what each measurement needs and how long it takes
	@$(BIN)/python benchmarks

# Documentation -------------------------------------------------------------------------------------

.PHONY: docs
docs: setup ## The documentation site, strict, in build/site (no network needed)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

.PHONY: docs-serve
docs-serve: setup ## Show the documentation at http://127.0.0.1:8000 while pages change
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --livereload

# Checking -----------------------------------------------------------------------------------------

.PHONY: lint
lint: setup ## ruff, mypy --strict, import-linter, prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --cache-dir $(MYPY_CACHE) proto/trimtab_api netmon/trimtab_netmon trainer/trimtab operator/trimtab_operator
	$(BIN)/lint-imports --no-cache
	@$(BIN)/python scripts/prose
	@! grep -rnE --include='*.py' '^\s*(from|import) test_' tests benchmarks || { echo "a test imports another: move what both need to tests/kit"; exit 1; }

.PHONY: check
check: lint ## What a developer runs before a commit: lint, types, unit tests
	$(BIN)/pytest -q $(SIDE_BY_SIDE) -m "not slow and not full and not namespaces and not cuda and not controlplane and not helm and not prometheus and not node and not images and not mpi and not browser and not olderkernel"

.PHONY: control-plane
control-plane: setup ## Build the Kubernetes control plane that tests run (once; Go needed)
	@$(BIN)/python tests/cluster/binaries.py

.PHONY: cluster-programs
cluster-programs: setup ## Build the programs of a whole cluster that tests run, node included (once; Go needed)
	@$(BIN)/python tests/cluster/binaries.py cluster

# A cluster counts as given only on the command line: nobody's tests run on what KUBECONFIG happens to say.
ifeq ($(origin KUBECONFIG),command line)
GIVEN := --kubeconfig $(KUBECONFIG) $(REGISTRY:%=--registry %) $(TAG:%=--tag %)
endif

.PHONY: e2e
e2e: setup ## A job's whole life on real pods: on a node of its own, or KUBECONFIG=FILE [REGISTRY=R TAG=T: R/trainer:T ...]
	@$(BIN)/python tests/cluster/binaries.py $(if $(GIVEN),--on-path kubectl helm,cluster)
	$(BIN)/pytest tests/e2e --require $(or $(GIVEN),--built-images)
	@echo "what kubectl printed on the way is in runs/e2e"

# What waits for a cluster leaves the cores to what computes; what measures a network, or fills the disk, runs by itself.
# Tests that share a control plane, or the pool of ranks, run in one process (tests/kit/scheduling.py), and begin first,
# which xdist's order by number of tests would undo. Where some tests fail the others still run; pytest ends with 2 where it
# was interrupted.
SIDE_BY_SIDE := --numprocesses $(LANES) --dist loadscope --no-loadscope-reorder
define run-tests
	$(BIN)/pytest -m "not alone$(1)" $(SIDE_BY_SIDE) $(if $(REQUIRE),--require) $(2) || \
	  { failed=$$?; test $$failed -ne 2; }; \
	$(BIN)/pytest -m "alone$(1)" $(if $(REQUIRE),--require) $(2) || failed=$$?; exit $${failed:-0}
endef

.PHONY: test
test: lint cluster-programs ## Every claim at its smallest size, and a line for each kind left out (REQUIRE=1: leaving out fails)
	$(call run-tests, and not full)

.PHONY: test-older-kernel
test-older-kernel: setup ## The monitor, the emulator and an adaptive run on Linux 6.1, as a process (part of test-all; as root)
	$(BIN)/pytest -s tests/emulate/test_real_older_kernel.py --require

.PHONY: test-all
test-all: lint cluster-programs dist-test ## The same and the full sizes: pods on a node, whole images, large runs, the oldest torch
	$(call run-tests, and not full,--check-budgets=test)
	$(call run-tests, and (full or node or hypothesis),--check-budgets=full --built-images --hypothesis-profile=wide --timeout=1500)

.PHONY: faults
faults: control-plane ## Hold the tests against small faults in the product: make faults [FAULTS="netmon session/average-of-sums"]
	@$(BIN)/python tests/faults/run.py $(FAULTS)

.PHONY: soak
soak: setup ## Train through random faults on the emulated network: make soak MINUTES=n SEED=s [PLAN=0.05/all-gather] (as root)
	@scripts/debian-packages iptables
	$(BIN)/python tests/soak $(or $(MINUTES),10) $(or $(SEED),0) $(PLAN)

.PHONY: clean
clean: ## Remove what the commands above made, runs/ apart
	rm -rf .venv dist $(TOOLS) .pytest_cache .mypy_cache .ruff_cache .hypothesis
