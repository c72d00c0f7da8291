# `make help` lists the targets. ARGS passes flags: make up ARGS="--port 9000"
PYTHON ?= python3
ARGS ?=
# the whole suite at once in as many processes as there are cores, up to four; a chosen test in one
PROCESSES = $(if $(ARGS),,-n logical --maxprocesses 4 --dist loadgroup)
PY := .venv/bin/python
READY := .venv/.ready
LOCK_HEAD := \# Every dependency with the hashes of all its files. Made by "make lock" from pyproject.toml.

.DEFAULT_GOAL := help
.PHONY: help up test check format-check lint types imports migrations broken-rules tour bench fmt lock

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(READY) ## start everything and stay until Ctrl-C (ARGS="--port 9000", ARGS=--help)
	@$(PY) manage.py up $(ARGS)

test: $(READY) ## run the whole test suite (ARGS="-k name" and other flags of pytest)
	@$(PY) -m pytest $(PROCESSES) $(ARGS)

broken-rules: $(READY) ## break each rule of docs/session-rules.md on purpose; its test must see it (ARGS="closure")
	@$(PY) -m tests.broken_rules $(ARGS)

check: format-check lint types imports migrations test ## format, lint, types, import contracts, migrations, then the tests

tour: $(READY) ## run the main job on a running system and print what it sees
	@$(PY) manage.py tour $(ARGS)

bench: $(READY) ## measure, side by side in one run
	@$(PY) -m benchmarks $(ARGS)

fmt: $(READY) ## format the code and mend what the linter can mend
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

lock: $(READY) ## pin every dependency of pyproject.toml in requirements.lock
	@$(PY) -m piptools compile --quiet --upgrade --extra dev --generate-hashes --allow-unsafe --strip-extras \
		--no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file .venv/lock pyproject.toml
	@{ echo '$(LOCK_HEAD)'; cat .venv/lock; } > requirements.lock

format-check: $(READY)
	@echo "== format"
	@$(PY) -m ruff format --check --output-format concise .

lint: $(READY)
	@echo "== lint"
	@$(PY) -m ruff check --output-format concise .

types: $(READY)
	@echo "== types"
	@$(PY) -m mypy

imports: $(READY)
	@echo "== imports"
	@.venv/bin/lint-imports

migrations: $(READY)
	@echo "== migrations"
	@DJANGO_SETTINGS_MODULE=tests.settings_for_checks $(PY) manage.py makemigrations --check --dry-run

$(READY): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Rondo needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Name another: make up PYTHON=python3.12"; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv .venv || { \
		echo "cannot make .venv: on Debian and Ubuntu, install python3-venv"; rm -rf .venv; exit 1; }
	@echo "Installing $$(grep -c == requirements.lock) packages into .venv; this takes a minute the first time …"
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@
