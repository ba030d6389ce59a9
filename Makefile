# Every target makes what it needs: a virtual environment in .venv, with Python 3.11 or newer and nothing else.
PYTHON ?= python3
ifeq ($(OS),Windows_NT)
SCRIPTS := Scripts
else
SCRIPTS := bin
endif
BIN := .venv/$(SCRIPTS)
EXTRAS ?= vision,volumes,plots,boost,dask,label,test,lint,docs
# numba's caches outlive a checkout but never a change of the sources.
export NUMBA_CACHE_DIR ?= $(CURDIR)/.numba_cache

.PHONY: demo test test-all test-lowest lint bench defaults-study docs changelog fuzz torch clean

demo: .venv/.core
	$(BIN)/backfield demo --out demo

# The library's own tests; test-all adds pages, experiments, campaigns, browsers and clusters. tests/conftest.py says which
# are which, and what comes first.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder
test: .venv/.installed
	$(PYTEST) -m "not end_to_end"

test-all: .venv/.installed
	$(PYTEST)

# The core tests on the lowest versions that pyproject.toml declares.
LOWEST := .venv-lowest/$(SCRIPTS)/python
LOWEST_TESTS ?= tests/test_api.py tests/test_registry.py tests/graph tests/estimators tests/cli/test_cli.py tests/gradients/test_fixed_point.py
test-lowest:
	test -x $(LOWEST) || $(PYTHON) -m venv .venv-lowest
	$(LOWEST) -m pip install --quiet --disable-pip-version-check --constraint constraints-lowest.txt --editable '.[vision,plots,test]'
	NUMBA_CACHE_DIR=$(CURDIR)/.venv-lowest/cache $(LOWEST) -m pytest -n 2 --dist loadscope $(LOWEST_TESTS)

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.installed
	$(BIN)/backfield bench

defaults-study: .venv/.installed
	$(BIN)/python -m backfield_benchmarks.defaults_study

docs: .venv/.installed
	$(BIN)/mkdocs build --strict

SECONDS ?= 600
fuzz: .venv/.installed
	$(BIN)/python -m fuzz --seconds $(SECONDS)

changelog: .venv/.installed
	$(BIN)/towncrier build --yes

# The demo needs the core and plots; tests and linters need the rest. PyTorch is an extra that nobody has to install: its
# tests run where it is. `make torch` before them brings it; on Linux, the CPU build comes with
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu, as in the workflow, and several GB of CUDA without.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.venv/.core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --no-compile --editable '.[plots]'
	-$(BIN)/python -m compileall -qq -j 0 .venv  # pip would use one core for it
	touch $@

.venv/.installed: .venv/.core papers/pyproject.toml benchmarks/pyproject.toml
	$(PIP) --editable '.[$(EXTRAS)]' --editable papers --editable benchmarks
	touch $@

torch: .venv/.core
	$(PIP) torch==2.13.0

clean:
	rm -rf .venv .venv-lowest .numba_cache .pytest_cache .mypy_cache .ruff_cache
