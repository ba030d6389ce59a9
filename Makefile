# Every target makes what it needs: a virtual environment in .venv, with Python 3.11 or newer and nothing else.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS ?= vision,plots,boost,dask,test,lint,docs
# numba's caches outlive a checkout but never a change of the sources.
export NUMBA_CACHE_DIR ?= $(CURDIR)/.numba_cache

.PHONY: demo test lint bench docs changelog clean

demo: .venv/.installed
	$(BIN)/backfield demo --out demo

test: .venv/.installed
	$(BIN)/python -m pytest -n 2 --dist loadscope

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.installed
	$(BIN)/backfield bench

docs: .venv/.installed
	$(BIN)/mkdocs build --strict

changelog: .venv/.installed
	$(BIN)/towncrier build --yes

.venv/.installed: pyproject.toml papers/pyproject.toml benchmarks/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]' --editable papers --editable benchmarks
	touch $@

clean:
	rm -rf .venv .numba_cache .pytest_cache .mypy_cache .ruff_cache
