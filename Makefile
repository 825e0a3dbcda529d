# Every target does its own set-up; a second call is quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two processes more than there are cores, since many tests wait; conftest.py puts long files first.
WORKERS := $(shell $(PYTHON) -c 'import os; print(min(6, (os.cpu_count() or 1) + 2))')
# A process that may not keep what it compiled compiles all of it again at each start.
unexport PYTHONDONTWRITEBYTECODE
# A process that crashes is not replaced: with --dist loadfile, pytest-xdist would wait for the tests of its file for ever.
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0

.PHONY: demo test suite quick check format lint types imports coverage resolve bench setup packages picture clean

demo: $(STAMP)  ## train a real model on eight devices of this machine
	@$(BIN)/edgefed demo

# mypy takes minutes where it has no cache: beside tests that wait, it costs next to nothing.
test: setup format lint imports packages  ## check, install what the tests need, and run all of them
	@$(MAKE) --no-print-directory --jobs=2 --keep-going types suite

suite:
	@$(PYTEST) || $(BIN)/python -m tests.second_attempt $$?

quick: $(STAMP)  ## the tests that take seconds
	$(PYTEST) -m "not slow"

check: format lint types imports  ## format, lint, types and import contracts, without the tests

format: $(STAMP)
	@$(BIN)/ruff format --check || { echo "to mend it: $(BIN)/ruff format"; exit 1; }

lint: $(STAMP)
	@$(BIN)/ruff check || { echo "to mend what can be: $(BIN)/ruff check --fix"; exit 1; }

types: $(STAMP)
	@$(BIN)/mypy || { echo "to see this again: make types"; exit 1; }

imports: $(STAMP)
	@$(BIN)/lint-imports || { echo "to see this again: make imports"; exit 1; }

coverage: setup packages  ## run all tests and print coverage by package; ARGS="tests/wire" runs some
	@$(PYTEST) --cov --cov-report= $(ARGS); failed=$$?; \
		$(BIN)/python -m tests.coverage_by_package && exit $$failed

resolve: $(STAMP)  ## whether the requirements resolve for Python 3.10 to 3.13; asks the package registry
	@$(BIN)/python -m tests.resolve

bench: setup  ## every benchmark; each prints a table, or a line on what it lacks, such as a GPU
	@for each in $$(cd benchmarks && ls -d [a-z]*.py */__main__.py | sed 's:/__main__::; s:\.py$$::'); do \
		echo "== $$each"; $(BIN)/python -m benchmarks.$$each || without="$$without $$each"; \
	done; test -z "$$without" || echo "not measured:$$without"

picture: $(STAMP)  ## draw docs/dashboard.svg from a simulated run
	$(BIN)/python docs/make_screenshot.py

setup: $(STAMP)

$(STAMP): pyproject.toml setup.py constraints.txt $(wildcard edgefed/native/*.[ch] broker/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "EdgeFed needs Python 3.10 or newer; set PYTHON=…"; exit 1; }
	@echo "installing into $(VENV) (torch is large; this happens once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[demo,dev]'
	@touch $@

# Root on a Debian machine gets Mosquitto, tmux and Chromium installed; others are told how, and tests that need them
# are skipped in plain sight.
packages:
	@sh tests/install_packages.sh

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
