# preflight: `make check` sets everything up and runs the main job here; `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
FAST := not integration and not gpu and not simcuda and not timing
HOSTILE := tests/hostile tests/nodes/test_strangers.py  # what `make test-hostile` runs
unexport PYTHONDONTWRITEBYTECODE  # an installed preflight has its bytecode; a start that compiles it is not what users see

.DEFAULT_GOAL := help
.PHONY: help check test test-timing test-integration everything test-hostile fuzz simcuda nccl-news test-simcuda simcuda-matrix vllm test-vllm sglang test-sglang gpu frameworks lint type fmt golden bench dist wheelhouse lock arm64 pairs clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "make: $(PYTHON) is older than 3.10; try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV) (a minute or two: torch is large) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

check: $(STAMP) ## Set up and run the main job: preflight check on this machine
	$(BIN)/preflight check

test: export PREFLIGHT_SAMPLE ?= $(shell git rev-parse HEAD 2>/dev/null || echo none)
test: $(STAMP) ## Run the tests, and those that start whole commands as the commit draws them (minutes; no root, no GPU)
	$(BIN)/pytest -n 2 -m '$(FAST)'

test-timing: $(STAMP) ## Run the tests that measure time, one after another; on a quiet machine (root)
	$(BIN)/pytest --durations 15 -m 'timing and not gpu and not simcuda' $(addprefix --ignore ,$(HOSTILE))

test-integration: $(STAMP) ## Run the slow tests: wheels, network namespaces, mounts (root)
	$(BIN)/pytest -n 2 --dist loadgroup --durations 15 -m 'integration and not simcuda and not timing' $(addprefix --ignore ,$(HOSTILE))

everything: export PREFLIGHT_SAMPLE =
everything: lint type test frameworks test-integration test-timing test-hostile simcuda test-simcuda ## Run all tests, also those of which a part is drawn elsewhere (root)

KILLS ?= 200
AT_ONCE ?= 30
MINUTES ?= 1
SEED ?= $(shell date +%s)
test-hostile: $(STAMP) ## Kill it at random instants, starve it, feed it garbage: KILLS=200 AT_ONCE=30 MINUTES=1 SEED=n (root)
	$(BIN)/python -m tests.hostile.kill_loop --kills $(KILLS) --abreast 2 --at-once $(AT_ONCE) --seed $(SEED)
	$(BIN)/pytest -n 2 tests/hostile
	$(BIN)/pytest $(filter-out tests/hostile,$(HOSTILE))
	$(BIN)/python -m tests.hostile.fuzz --minutes $(MINUTES) --seed $(SEED)

fuzz: $(STAMP) ## Mutate good input for every parser: make fuzz MINUTES=n; what fails is kept in tests/hostile/corpus
	$(BIN)/python -m tests.hostile.fuzz --minutes $(MINUTES)

simcuda: $(STAMP) ## Fetch NCCL and torch with CUDA (2 GB) and build the simulated driver
	$(BIN)/python -m tests.simcuda.fetch

nccl-news: $(STAMP) ## Print what came and went between releases of NCCL, and what was done for each name (after `make simcuda`)
	$(BIN)/python -m scripts.nccl_news

test-simcuda: $(STAMP) ## Run the tests of and on the real NCCL (root; after `make simcuda`)
	@$(BIN)/python -m tests.simcuda.places
	$(BIN)/pytest -n 2 --dist worksteal --durations 15 -m simcuda tests/simcuda

simcuda-matrix: $(STAMP) ## Hold simnccl against the real NCCL, 675 cells (root; after `make simcuda`)
	@$(BIN)/python -m tests.simcuda.places
	$(BIN)/python -m tests.simcuda.matrix

vllm: $(STAMP) ## Fetch a vLLM that runs on the CPU, and a tiny model (4 GB)
	$(BIN)/python -m tests.serving.fetch vllm

test-vllm: vllm ## Run the tests on the real vLLM (minutes; outside CI)
	PREFLIGHT_REQUIRE=vllm $(BIN)/pytest tests/serving/test_vllm.py

sglang: $(STAMP) ## Fetch an SGLang that runs on the CPU with stand-ins for its kernels, and a tiny model (3 GB)
	$(BIN)/python -m tests.serving.fetch sglang

test-sglang: sglang ## Run the tests on the real SGLang (minutes; outside CI)
	PREFLIGHT_REQUIRE=sglang $(BIN)/pytest tests/serving/test_sglang.py

gpu: $(STAMP) ## Run all that needs an NVIDIA GPU, and leave preflight-gpu.tar.gz
	$(BIN)/preflight gpu-report; [ $$? -le 1 ]
	$(BIN)/pytest -q -m gpu tests/gpu

frameworks: $(STAMP) ## Install the frameworks whose timeouts the slow tests try for real
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,frameworks]'

lint: $(STAMP) ## Check style and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

type: $(STAMP) ## Check types
	$(BIN)/mypy

fmt: $(STAMP) ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: $(STAMP) ## Write the expected outputs anew; read the diff before you commit it
	PREFLIGHT_GOLDEN=write $(BIN)/pytest -q tests/show tests/explain/test_pages.py tests/explain/test_answers.py tests/judge/test_every_value.py tests/search/test_every_value.py tests/cli/test_machines.py tests/cli/test_simulated_machines.py tests/test_readme.py

bench: $(STAMP) ## Print what preflight costs and how true its figures are, side by side with the plain thing
	$(BIN)/python -m scripts.bench_overhead
	$(BIN)/python -m scripts.bench_accuracy
	$(BIN)/python -m scripts.bench_hangs
	$(BIN)/python -m scripts.bench_decisions
	$(BIN)/python -m scripts.bench_wrong_data
	$(BIN)/python -m scripts.bench_under_load
	$(BIN)/python -m scripts.bench_intermittent
	$(BIN)/python -m scripts.bench_explain
	$(BIN)/python -m scripts.bench_probe
	$(BIN)/python -m scripts.bench_isolation
	$(BIN)/python -m scripts.bench_baseline
	$(BIN)/python -m scripts.bench_fleet
	$(BIN)/python -m scripts.bench_storage
	$(BIN)/python -m scripts.bench_store
	$(BIN)/python -m scripts.bench_nodes
	$(BIN)/python -m scripts.bench_stuck
	$(BIN)/python -m scripts.bench_run

DIST ?= dist
dist: $(STAMP) ## Build the wheel and the sdist, and check what is in them
	rm -rf $(DIST)
	$(BIN)/python -m build --no-isolation --outdir $(DIST) .
	$(BIN)/twine check --strict $(DIST)/*
	$(BIN)/check-wheel-contents $(DIST)/*.whl

WHEELHOUSE ?= wheelhouse
wheelhouse: dist ## Pack all wheels but torch's into wheelhouse.tar.gz for a node without an index, of this Python and architecture
	rm -rf $(WHEELHOUSE)
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes -r requirements.lock --dest $(WHEELHOUSE)
	cp $(DIST)/*.whl requirements.lock $(WHEELHOUSE)
	tar -C $(dir $(WHEELHOUSE)) -czf $(WHEELHOUSE).tar.gz $(notdir $(WHEELHOUSE))

lock: $(STAMP) ## Write requirements.lock anew: what the package index has today for all extras but torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes --annotation-style line --extra all --custom-compile-command 'make lock' pyproject.toml -o requirements.lock

arm64: $(STAMP) ## Look up a wheel for 64-bit ARM of everything in requirements.lock
	$(BIN)/python -m scripts.lock_wheels

pairs: dist ## Try the wheel beside five releases of torch on four Pythons (20 GB, outside CI)
	$(BIN)/python -m scripts.try_pairs $(DIST)/*.whl

clean: ## Remove the venv and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build wheelhouse wheelhouse.tar.gz
