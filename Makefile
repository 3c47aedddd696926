# Everything starts from a fresh clone: each target makes the .venv that it needs.
PYTHON ?= python3
BIN := .venv/bin
# One thread, and none that spins: on few cores, waiting threads cost more than they give.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE
export HF_HUB_OFFLINE ?= 1

# The placeholder of the account that hosts the repository, in all files except this one.
PLACEHOLDER := OWNER

.PHONY: owner demo real-model docs test test-slow test-real test-gpu gpu-bundle test-interop test-matrix test-oldest mutants lint format install install-dev clean

demo: install  ## two small language models learn to write together
	$(BIN)/collm demo

real-model: install-dev  ## SmolLM2-135M-Instruct, a real chat model, into models/; downloads 93 MB once
	$(BIN)/python tools/real_model.py

test: install-dev lint  ## lint, types and the quick tests, as CI runs them
	$(BIN)/pytest -q -n 2 -m "not slow and not gpu and not real"

test-slow: install-dev  ## the minutes-long checks
	$(BIN)/pytest -q -n 2 -m "slow and not gpu and not real"

test-real: install-dev real-model  ## the tests with SmolLM2-135M-Instruct
	$(BIN)/pytest -q -m real

test-gpu: install-dev  ## what needs a GPU; without one every test is skipped
	$(BIN)/pytest -q -m gpu

gpu-bundle:  ## wheels for a machine with torch, transformers and peft but no network, in .gpu-bundle/
	$(PYTHON) tools/gpu_bundle/gather.py

test-interop:  ## train with other libraries, each in an environment of its own; LIBRARIES="torchrl trl" for some
	$(PYTHON) tests/interop/run.py $(LIBRARIES)

test-matrix:  ## the environments with the oldest and the newest Gymnasium and PettingZoo
	$(PYTHON) tests/interop/matrix.py

test-oldest:  ## the quick tests of agents/ and algorithms/ with the oldest torch and transformers; downloads gigabytes
	$(PYTHON) tests/interop/matrix.py --oldest

mutants: .venv/.installed-mutants  ## small faults that the tests must find; SAMPLE=40 per module, MODULES="algorithms/functions" for some
	$(BIN)/python tools/mutation/run.py $(if $(SAMPLE),--sample $(SAMPLE)) $(MODULES)

owner:  ## fill in the account that hosts the repository: make owner ACCOUNT=name
	@test -n "$(ACCOUNT)" || { echo "error: ACCOUNT is empty; run make owner ACCOUNT=name"; exit 2; }
	git grep -lwF $(PLACEHOLDER) -- ':!Makefile' | xargs -r sed -i 's/\b$(PLACEHOLDER)\b/$(ACCOUNT)/g'

docs: .venv/.installed-docs  ## the site of the documentation, into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: .venv/.installed
install-dev: .venv/.installed-dev

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --upgrade pip

.venv/.installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[train]"
	touch $@

.venv/.installed-dev: .venv/.installed
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dev]"
	touch $@

.venv/.installed-docs: .venv/.installed
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[train,docs]"
	touch $@

.venv/.installed-mutants: .venv/.installed-dev
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dev,mutants]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .mutants
