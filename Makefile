# `make help` lists the commands. Everything lives in .venv; remove it with `make clean`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# What an installed copy depends on. The C parts are compiled at install time, so a
# changed .c file has to reinstall; Python files are used in place.
INSTALLED_FROM := pyproject.toml setup.py constraints.txt \
	$(wildcard src/corral/*/*/*.c) $(wildcard src/corral/*/*/*.h)

# Libraries whose pins collide with ours have environments of their own.
INTEGRATIONS := $(VENV)/integrations
NEEDS_agilerl := peft  # which its algorithms import, though it does not ask for it

.DEFAULT_GOAL := help
.PHONY: help run test matrix soak check format conformance integrations bench clean

help:  ## Show this list.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

run: $(VENV)/.train  ## Set up, then `corral train cartpole`: to 475 in about a minute, with a report.
	$(BIN)/corral train cartpole

# Thousands of workers start in the tests: compiled once, also where Python is told to
# write no bytecode. Many tests wait: three at a time keep two cores busy, and OpenBLAS's
# threads would wait busily beside them.
test: $(VENV)/.test  ## Set up, then run all tests.
	$(BIN)/python -m compileall -q src tests
	OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n 3 --dist worksteal

matrix:  ## All tests that need no torch, with every Python from 3.10 on that is at hand.
	$(PYTHON) tests/matrix.py

MINUTES ?= 5
PROGRAMS ?= 1000
FAULTS ?= 100
soak: $(VENV)/.test  ## Slow tests, MINUTES=5 of random faults, PROGRAMS=1000 random programs, FAULTS=100 of a cluster.
	$(BIN)/python -m pytest -q -m slow -o faulthandler_timeout=600
	$(BIN)/python -m tests.soak.random_faults --minutes $(MINUTES)
	$(BIN)/python -m tests.soak.programs --count $(PROGRAMS)
	$(BIN)/python -m tests.soak.cluster_faults --faults $(FAULTS)

check: $(VENV)/.dev  ## Lint, formatting, types, import layers, spelling, remains of merges.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	! git grep -nE '^(<<<<<<<|>>>>>>>) '  # left by a merge

format: $(VENV)/.dev  ## Sort imports and format.
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

conformance: $(VENV)/.conformance  ## Gymnasium's and SB3's own tests on our classes; migrated scripts; stateful envs.
	$(BIN)/python -m conformance.gymnasium_vector
	$(BIN)/python -m conformance.sb3_vector
	$(BIN)/python -m conformance.migrated
	$(BIN)/python -m conformance.stateful

# conformance/agilerl_vector.py runs by itself: it needs AgileRL, and a checkout of its tests.
integrations: $(INTEGRATIONS)/agilerl/.done $(INTEGRATIONS)/wandb/.done  ## AgileRL's and W&B's tests.
	OMP_NUM_THREADS=1 $(INTEGRATIONS)/agilerl/bin/python -m pytest -q \
		-o faulthandler_timeout=600 tests/api/agilerl
	OMP_NUM_THREADS=1 $(INTEGRATIONS)/wandb/bin/python -m pytest -q \
		-o faulthandler_timeout=600 -k wandb \
		tests/train/run/test_wandb_runs.py tests/train/sinks/test_sinks.py

bench: $(VENV)/.test  ## Measure seven claims of benchmarks/README.md (minutes).
	$(BIN)/python benchmarks/vector_speed.py
	$(BIN)/python benchmarks/sb3_speed.py
	$(BIN)/python benchmarks/stragglers.py
	$(BIN)/python benchmarks/threads.py
	$(BIN)/python benchmarks/stats_cost.py
	$(BIN)/python benchmarks/check_actions.py
	$(BIN)/python benchmarks/torch_threads.py

clean:  ## Remove .venv, builds and caches.
	rm -rf $(VENV) build dist src/*.egg-info conformance/cache
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks conformance -name __pycache__ -type d -prune -exec rm -rf {} +
	find src -name '*.so' -delete

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp per set of extras: $(VENV)/.test stands for `pip install -e .[test]`.
$(VENV)/.%: $(INSTALLED_FROM) | $(BIN)/python
	$(PIP_INSTALL) -e '.[$*]'
	@touch $@

$(INTEGRATIONS)/%/.done: integrations/%.txt $(INSTALLED_FROM)
	$(PYTHON) -m venv $(INTEGRATIONS)/$*
	$(INTEGRATIONS)/$*/bin/python -m pip install --quiet --disable-pip-version-check \
		-c integrations/$*.txt $* $(NEEDS_$*) pytest -e '.[train]'
	@touch $@
