.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# `make run` installs the runtime only, in a third of the time and a sixth of the space.
RUNTIME := $(VENV)/.runtime
READY := $(VENV)/.ready
PIP_INSTALL := $(BIN)/python -u -m pip install --disable-pip-version-check
# One line per package as it is fetched, nothing for those that are installed already.
PROGRESS := sed -u -n -E 's/^Collecting ([^ ]+).*/  fetching \1/p; s/^Installing collected packages.*/  unpacking/p'
# Many tests wait for a process, a clock or a disk: with fewer workers, cores are idle.
WORKERS ?= $(shell echo $$((4 * $$(nproc))))

PIN := $(BIN)/pip-compile --quiet --allow-unsafe --generate-hashes --strip-extras --no-emit-index-url \
	--no-emit-find-links --no-emit-trusted-host --no-header

# The suite starts hundreds of processes; each would compile the package anew.
COMPILED := env -u PYTHONDONTWRITEBYTECODE

# Without processes and servers: what a change of a rule needs after each save.
UNIT := tests/core tests/config tests/plugins tests/test_architecture.py tests/test_clock.py tests/test_files.py

.PHONY: help run unit test lint types format check wheel bench docs torture lock clean web web-browser web-test web-check

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	@echo "Creating the virtual environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(RUNTIME): pyproject.toml requirements/runtime.txt requirements/build.txt | $(BIN)/python
	@echo "Installing Ductile and its runtime dependencies"
	@set -o pipefail; $(PIP_INSTALL) --require-hashes \
		-r requirements/runtime.txt -r requirements/build.txt | $(PROGRESS)
	@$(PIP_INSTALL) --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(READY): pyproject.toml requirements/dev.txt | $(BIN)/python
	@echo "Installing Ductile and the development tools, which takes a minute"
	@set -o pipefail; $(PIP_INSTALL) --require-hashes -r requirements/dev.txt | $(PROGRESS)
	@$(PIP_INSTALL) --quiet --no-deps --no-build-isolation --editable .
	@touch $(RUNTIME) $@

run: $(RUNTIME) ## start a gateway on the demo config and watch it work (Ctrl-C ends it)
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

check: lint types test wheel ## everything that CI checks

wheel: $(READY) ## build the wheel and try it in a new virtual environment
	@PYTHON=$(PYTHON) BUILD_PYTHON=$(BIN)/python .ci/test-wheel

bench: $(READY) ## measure; writes bench/out/*.json
	@$(BIN)/python -m bench

docs: $(READY) ## write the generated pages
	@$(BIN)/python -m ductile.config.reference > docs/reference/config-reference.md
	@$(BIN)/python -m ductile.cli.reference > docs/reference/commands.md

torture: $(READY) ## the long crash loops
	@$(BIN)/python -m pytest -n $(WORKERS) -m torture --timeout 3600

.PHONY: mutants
mutants: $(READY) ## plant each bug of mutants/ and expect a test to fail (ONLY=name for one)
	@$(BIN)/python -m mutants $(ONLY)

lock: $(READY) ## pin the dependencies
	@$(PIN) -o requirements/build.txt requirements/build.in
	@$(PIN) --extra postgres -o requirements/runtime.txt pyproject.toml
	@$(PIN) -o requirements/dev.txt requirements/dev.in

# The build is committed, so that only a change of the dashboard needs Node.
WEB_READY := web/node_modules/.package-lock.json
WEB_BUILD := src/ductile/http/static/ui

# Not `npm ci`: it refuses a lock file without the optional packages of other platforms. The
# versions and checksums of the lock file hold all the same.
$(WEB_READY): web/package.json web/package-lock.json
	@echo "Installing the tools of the dashboard"
	@cd web && npm install --no-save --silent
	@touch $@

web: $(READY) $(WEB_READY) ## build the dashboard into the package
	@$(BIN)/python web/scripts/print_openapi.py > web/openapi.json
	@cd web && npm run --silent types:api && npm run --silent build && npm run --silent check:size

web-browser: ## install Debian's Chromium, for the browser tests (as root)
	@apt-get install --yes --no-install-recommends chromium

web-test: $(WEB_READY) ## run the unit tests of the dashboard; `make test` runs it in a browser
	@cd web && npm test --silent

web-check: $(READY) $(WEB_READY) ## check style, types, size and the committed build of the dashboard
	@$(BIN)/python web/scripts/print_openapi.py > web/openapi.json
	@cd web && npm run --silent check:lint && npm run --silent check:types && npm run --silent check:api
	@cd web && npm run --silent build -- --outDir node_modules/.build --logLevel warn
	@diff -r web/node_modules/.build $(WEB_BUILD) || { echo "The committed build is out of date: run make web"; exit 1; }
	@cd web && npm run --silent check:size

clean: ## remove generated files
	@rm -rf web/node_modules .venv* .mypy_cache .ruff_cache build dist demo
