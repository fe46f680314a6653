# Everything a newcomer needs: `make demo` and `make test` create .venv on first use, and nothing twice.
PYTHON ?= python3
VENV := .venv
# One process more than cores: tests that start programs often wait for them. Two more took longer.
WORKERS := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
BIN := $(VENV)/bin
# Not compiled: most modules of large packages are never imported, and the others are compiled when they are,
# once: where this variable is set, each of the hundreds of programs that tests start would compile them again.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/pip --disable-pip-version-check --quiet install --no-compile --constraint constraints.txt

# All but one, which needs packages that do not go with ours; its first lines say how to run it.
BENCHMARKS := $(filter-out benchmarks/audit_anonymeter.py,$(sort $(wildcard benchmarks/*.py)))

.PHONY: demo test test-all check bench docs dist clean

demo: $(VENV)/.ready-run
	$(BIN)/locum demo

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

test: $(VENV)/.ready-dev
	$(PYTEST) -m 'not slow'

test-all: $(VENV)/.ready-dev
	$(PYTEST)

check: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready-bench
	@for file in $(BENCHMARKS); do echo "== $$file"; $(BIN)/python $$file $(QUICK) || exit 1; done

# Every tutorial and example is executed each time (-E): what a page shows is what this version prints.
# One thread each: two pages are made at once.
docs: $(VENV)/.ready-docs
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -q -E -j auto docs build/docs
	@echo "open build/docs/index.html"

# Wheel and sdist (twice, compared), SBOM, licenses and hashes in dist/. Two more environments: tools, and locum[all].
dist: .venv-dist/.ready .venv-all/.ready
	@# Installed without constraints, as a receiver installs it: the program must run with the newest of everything.
	.venv-dist/bin/locum doctor
	.venv-dist/bin/hadolint Dockerfile
	.venv-dist/bin/python scripts/dist.py --all-packages .venv-all/bin/python

clean:
	rm -rf $(VENV) .venv-dist .venv-all build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready-run: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing about 60 packages into $(VENV). The first time takes minutes and prints nothing."
	$(PIP) --editable '.[studio]'
	touch $@

$(VENV)/.ready-dev: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing about 150 packages into $(VENV). The first time takes minutes and prints nothing."
	$(PIP) --editable '.[studio,dev]'
	touch $(VENV)/.ready-run $@

$(VENV)/.ready-bench: $(VENV)/.ready-dev
	$(PIP) --editable '.[studio,dev,bench]'
	touch $@

$(VENV)/.ready-docs: $(VENV)/.ready-dev
	$(PIP) --editable '.[studio,dev,docs]'
	touch $@

.venv-dist/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/pip --disable-pip-version-check --quiet install '.[release]'
	touch $@

# Not editable: it holds what a user gets.
.venv-all/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-all
	.venv-all/bin/pip --disable-pip-version-check --quiet install --constraint constraints.txt '.[all]'
	touch $@
