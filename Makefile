.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Most tests wait for a process, a clock or a disk: two of them keep one core busy.
WORKERS ?= $(shell echo $$((2 * $$(nproc))))

# The suite starts hundreds of processes; each would compile the package anew.
COMPILED := env -u PYTHONDONTWRITEBYTECODE

# Without processes and servers: what a change of a rule needs after each save.
UNIT := tests/core tests/config tests/plugins tests/test_architecture.py tests/test_clock.py tests/test_files.py

.PHONY: help run unit test lint types format check bench docs torture lock clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml requirements/dev.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: $(READY) ## start a gateway on the demo config and watch it work (Ctrl-C ends it)
	@$(BIN)/ductile system demo

unit: $(READY) ## run the tests that start no process, in half a minute
	@$(COMPILED) $(BIN)/python -m pytest -n $$(nproc) --ignore tests/config/test_cold_start.py $(UNIT)

test: $(READY) ## run the whole test suite but the torture tests
	@$(COMPILED) $(BIN)/python -m pytest -n $(WORKERS) -m 'not torture'

lint: $(READY) ## check style
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

# Every plugin is a program of its own, with a module `run`.
types: $(READY) ## check types
	@$(BIN)/mypy
	@for plugin in plugins/*/; do \
		MYPYPATH=plugins/lib:$$plugin $(BIN)/mypy --explicit-package-bases $$plugin*.py || exit 1; \
	done

format: $(READY) ## fix style
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

check: lint types test ## everything that CI checks

bench: $(READY) ## measure; writes bench/out/*.json
	@$(BIN)/python -m bench

docs: $(READY) ## write the generated pages
	@$(BIN)/python -m ductile.config.reference > docs/reference/config-reference.md
	@$(BIN)/python -m ductile.cli.reference > docs/reference/commands.md

torture: $(READY) ## the long crash loops
	@$(BIN)/python -m pytest -n $(WORKERS) -m torture --timeout 3600

lock: $(READY) ## pin the dependencies
	@$(BIN)/pip-compile --quiet --allow-unsafe --generate-hashes --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header --extra postgres -o requirements/runtime.txt pyproject.toml
	@$(BIN)/pip-compile --quiet --allow-unsafe --generate-hashes --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header -o requirements/dev.txt requirements/dev.in

clean: ## remove generated files
	@rm -rf .venv* .mypy_cache .ruff_cache build dist demo
