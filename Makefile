.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

VENV := .venv
BIN := $(VENV)/bin
# The first interpreter that runs, is new enough and can make virtual environments.
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3; do \
	$$name -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$name; break; }; \
	done)

# One more than there are cores, up to five: tests of browsers and processes wait a quarter of their time.
TESTERS := $(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 5)))

ifdef LOGS
export ANAMNESIS_LOG_ROOTS := $(abspath $(LOGS))
# Invented sessions get a memory of their own, unless a home is set.
ifneq ($(filter $(CURDIR)/examples $(CURDIR)/examples/%,$(ANAMNESIS_LOG_ROOTS)),)
export ANAMNESIS_HOME ?= $(or $(XDG_DATA_HOME),$(HOME)/.local/share)/anamnesis-examples
endif
endif

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | column -t -s '|'

.PHONY: up
up: $(VENV)/.installed ## Install when needed, then start everything (LOGS=dir reads the logs there)
	@exec $(BIN)/anamnesis up

.PHONY: check
check: $(VENV)/.installed-dev ## Static checks: lint, format, types, import rules, definitions, documentation, secrets
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	scratch=$$(mktemp -d) && trap 'rm -r "$$scratch"' EXIT && cp dagster.yaml "$$scratch" && \
		DAGSTER_HOME=$$scratch ANAMNESIS_HOME=$$scratch VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/dg check defs
	$(BIN)/python docs/reference.py --check
	scratch=$$(mktemp -d) && trap 'rm -r "$$scratch"' EXIT && NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir "$$scratch"
	git ls-files -z ':!anamnesis_tests' ':!examples' | xargs -0 -n 100 -P 2 $(BIN)/detect-secrets-hook --disable-plugin HexHighEntropyString --disable-plugin Base64HighEntropyString --exclude-secrets '^(anamnesis-ssh|anamnesis-postgres|ro.)$$'

.PHONY: test
test: check ## Static checks, unit tests, and one test of the whole system
	$(BIN)/pytest -n $(TESTERS) --dist worksteal
	$(BIN)/pytest -m e2e anamnesis_tests/test_acceptance_end_to_end.py

.PHONY: test-all
test-all: test test-system test-stores test-kills test-docker ## Everything but soaks

.PHONY: test-system
test-system: $(VENV)/.installed-dev ## Whole systems, all pages in a real browser, and clients generated from the OpenAPI document
	$(BIN)/pytest -m '(e2e or browser) and not slow and not kills' -n 2 --dist loadfile
	$(BIN)/pytest -m e2e -n 2 anamnesis_tests/sidecar/test_openapi.py

.PHONY: test-slow
test-slow: $(VENV)/.installed-dev ## Soaks and huge inputs
	$(BIN)/pytest -m slow

.PHONY: test-kills
test-kills: $(VENV)/.installed-dev ## Processes killed at many moments, and a database that stops for a minute
	$(BIN)/pytest -m 'kills and not slow' -n 2 --dist loadfile

.PHONY: test-stores
test-stores: $(VENV)/.installed-dev ## Tests of the store, the pipeline and the services on the tests' MongoDB
	ANAMNESIS_TEST_STORES=all $(BIN)/pytest -m 'mongo and not slow and not kills' -n $(TESTERS) --dist worksteal \
		anamnesis_tests/store anamnesis_tests/pipeline anamnesis_tests/services anamnesis_tests/defs

.PHONY: test-dagster
test-dagster: $(VENV)/.installed-dev ## Tests of the pipeline on the oldest Dagster that pyproject.toml allows, in a copy of .venv
	rm -rf $(VENV)-dagster && cp -a $(VENV) $(VENV)-dagster
	$(VENV)-dagster/bin/python -m pip install --quiet --disable-pip-version-check \
		dagster==1.12.0 dagster-webserver==1.12.0 dagster-docker==0.28.0 dagster-k8s==0.28.0 dagster-postgres==0.28.0
	$(VENV)-dagster/bin/python -m pytest anamnesis_tests/defs anamnesis_tests/services/dagster/test_dagster_api.py

.PHONY: test-docker
test-docker: $(VENV)/.installed-dev ## The whole system in real containers (root; Debian: docker.io, docker-compose, debootstrap)
	$(BIN)/pytest -m docker -rs

.PHONY: test-mongo
test-mongo: $(VENV)/.installed-dev ## The store's tests against the compose file's own MongoDB (Docker pulls its image)
	anamnesis_tests/containers/with-mongo.sh $(BIN)/pytest -m 'mongo and not slow' anamnesis_tests/store

.PHONY: bench
bench: $(VENV)/.installed-dev ## Measure, and print the tables of benchmarks/README.md
	$(BIN)/python -m benchmarks

.PHONY: bench-memory
bench-memory: $(VENV)/.installed-dev ## Measure recall beside plain search and other memories; writes docs/benchmarks.md (ARGS=...)
	$(BIN)/python benchmarks/memory.py $(ARGS)

.PHONY: docs
docs: $(VENV)/.installed-dev ## Serve the documentation at http://127.0.0.1:8000, rebuilt at each change
	$(BIN)/mkdocs serve

.PHONY: reference
reference: $(VENV)/.installed-dev ## Write the reference pages of docs/ again from the code
	$(BIN)/python docs/reference.py

.PHONY: clean
clean: ## Remove the virtual environment and all caches; stored memory is kept
	rm -rf $(VENV) $(VENV)-dagster build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# Nothing is installed again until pyproject.toml or constraints.txt changes.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV); the first time takes some minutes and about 2 GB"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Anamnesis needs Python 3.11 or newer with venv (Debian: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
