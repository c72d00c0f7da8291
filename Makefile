# `make help` lists the targets. ARGS passes flags: make up ARGS="--port 9000"
PYTHON ?= python3
ARGS ?=
# the whole suite runs in one process per core, up to four; chosen tests run in one process
PROCESSES = $(if $(ARGS),,-n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder)
PY := .venv/bin/python
READY := .venv/.ready
LOCK_HEAD := \# Every dependency with the hashes of all its files. Made by "make lock" from pyproject.toml.

# some images turn Python's bytecode cache off; without it each process compiles everything again, about a second
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help up test evals check format-check lint types imports migrations broken-rules rules pictures tour soak bench bench-check fmt lock

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(READY) ## start everything; Ctrl-C stops it (ARGS="--port 9000", ARGS=--help)
	@$(PY) manage.py up $(ARGS)

test: $(READY) ## run the whole test suite (ARGS="-k name" and other flags of pytest)
	@$(PY) -m pytest $(PROCESSES) $(ARGS)

broken-rules: $(READY) ## break rules of docs/rules.md on purpose and check that their tests fail (ARGS="4.8 closure")
	@$(PY) -m tests.broken_rules $(ARGS)

evals: $(READY) ## play twenty conversations with a real model; costs tokens (ARGS=--renew, ARGS=--help)
	@$(PY) -m tests.conversations $(ARGS)

check: format-check lint types imports migrations test ## run format, lint, types, import contracts, migrations and tests

rules: $(READY) ## generate docs/rules.md from the rule marks of the tests
	@$(PY) -m tests.rules

tour: $(READY) ## demonstrate the main features on a running server
	@$(PY) manage.py tour $(ARGS)

soak: $(READY) ## test a separate server under load, faults and abusive clients (ARGS="--minutes 60", ARGS=--help)
	@$(PY) -m tests.soak $(ARGS)

pictures: $(READY) ## take the pictures of docs/images/ again, from running pages (needs chromium)
	@$(PY) -m pytest -q tests/pictures.py $(ARGS)

bench: $(READY) ## run the benchmarks
	@$(PY) -m benchmarks $(ARGS)

bench-check: $(READY) ## run the benchmarks with small sizes and name what got worse than the stored baseline
	@$(PY) -m benchmarks --quick --check benchmarks/baseline.json $(ARGS)

fmt: $(READY) ## format the code and apply the linter's automatic fixes
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
		echo "Rondo needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Choose another: make up PYTHON=python3.12"; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv .venv || { \
		echo "cannot create .venv; on Debian and Ubuntu, install python3-venv"; rm -rf .venv; exit 1; }
	@echo "Installing $$(grep -c == requirements.lock) packages into .venv; this takes a minute the first time …"
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@
