# `make help` lists the targets. ARGS passes flags: make up ARGS="--port 9000"
PYTHON ?= python3
ARGS ?=
# many tests run in one process per core, up to four; tests chosen by -k, -m or path run in one, whichever tier they belong to
SPREAD = -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder --durations 10
CHOSEN = $(if $(filter -k% -m% tests%,$(ARGS)),,$(SPREAD) $(1))
PY := .venv/bin/python
NODE_PACKAGES := .node
READY := .venv/.ready
# `make test-django` tests with this Django, in an environment of its own
VERSION ?= 6.1
DJANGO := .venv/django-$(VERSION)
DEV := .venv/.ready-dev
MUTATES := cosmic-ray==8.7.0 parso==0.8.7 stevedore==5.10.0
LOCK_MARK := \# Every dependency
LOCK_HEAD := $(LOCK_MARK) of a server, with the hashes of all its files. Made by "make lock" from pyproject.toml.
UV_LOCK_HEAD := $(LOCK_MARK) of uv, which installs the others. Made by "make lock", as requirements.lock.
DEV_LOCK_HEAD := $(LOCK_MARK) of a server and of its checks and tests. Made by "make lock", as requirements.lock.
LOCK_DJANGO := Django<5.3 # so that the locks serve Python 3.11 whichever Python makes them
COMPILE = $(PY) -m piptools compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header $(ARGS)
# uv installs in seconds what takes pip a minute. pip does it where uv cannot be had or fails, and where pip's own settings name
# other ways to packages than uv would take. Their names alone are logged: an address may have a password.
# What an interrupted uv leaves behind looks installed, so then all is installed again.
install = echo "Installing the packages of $(2) ($$(grep -c == $(2))) into $(1); this takes a while the first time …" \
	&& { { $(call uv,$(1),$(2)); } > $(1)/uv.log 2>&1 || { \
		echo "uv cannot install them (see $(1)/uv.log); pip takes about a minute" && $(call pip,$(1),$(call again,$(1),force-) -r $(2)); }; } \
	&& rm -f $(1)/.begun
uv = ! $(1)/bin/python -m pip config list | grep -oE '\.((no-)?index[a-z-]*|proxy|client-cert|(only|no)-binary)=' \
	&& $(call pip,$(1),--only-binary :all: --retries 1 -r requirements-uv.lock) && again=$(call again,$(1)) && touch $(1)/.begun \
	&& UV_SYSTEM_CERTS=1 $(1)/bin/uv pip install --quiet --compile-bytecode $$again \
		--require-hashes --no-deps --python $(1)/bin/python -r $(2)
again = $$([ ! -e $(1)/.begun ] || echo --$(2)reinstall)
# A lock is complete. Without --no-deps, pip may try a release that is newer than a pin, if a package asks for an extra of it.
pip = $(1)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps $(2)

# some images turn Python's bytecode cache off; without it each process compiles everything again, about a second
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help up test test-all test-rest test-django evals check format-check lint types imports migrations broken-rules mutants rules pictures chaos bench bench-check fmt wheel node-tools node-tools-if-any lock

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(READY) ## start everything; Ctrl-C stops it (ARGS="--port 9000", ARGS=--help)
	@$(PY) manage.py up $(ARGS)

test: $(DEV) ## test each rule, in minutes (ARGS="-k name" or a path chooses among all tests; ARGS takes any flag of pytest)
	@$(PY) -m pytest $(call CHOSEN,-m "not full" --longest 5) $(ARGS)

test-all: $(DEV) node-tools-if-any ## run all tests
	@$(PY) -m pytest $(call CHOSEN) $(ARGS)

test-rest: $(DEV) node-tools-if-any ## run the tests that `make test` leaves out
	@$(PY) -m pytest $(call CHOSEN,-m full) $(ARGS)

test-django: $(DJANGO)/.ready ## run the tests with another Django (VERSION=6.0 PYTHON=python3.13 ARGS=tests/api)
	@echo "== Django $$($(DJANGO)/bin/python -m django --version), $$($(DJANGO)/bin/python -V)"
	@$(DJANGO)/bin/python -m pytest $(call CHOSEN) $(ARGS)

broken-rules: $(DEV) ## break rules of docs/rules.md on purpose and check that their tests fail (ARGS="4.8 closure")
	@$(PY) -m tests.broken_rules $(ARGS)

mutants: $(DEV) ## change the core at random and count the changes that the tests notice (ARGS="--count 50 --seed 30", ARGS=--help)
	@[ -e .venv/mutants/.ready ] || { $(PY) -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --target .venv/mutants \
		$(MUTATES) && touch .venv/mutants/.ready; }
	@PYTHONPATH=.venv/mutants $(PY) -m tests.mutants $(ARGS)

evals: $(DEV) ## play 24 conversations with a real model; costs tokens (ARGS=--renew, ARGS=--help)
	@$(PY) -m tests.conversations $(ARGS)

check: format-check lint types imports migrations ## check format, lint, types, import contracts and migrations

rules: $(DEV) ## generate docs/rules.md from the rule marks of the tests
	@$(PY) -m tests.rules

chaos: $(DEV) ## test a separate server under load, faults and abusive clients (MINUTES=60 SEED=7, ARGS=--help)
	@$(PY) -m chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

pictures: $(DEV) ## take the pictures of docs/images/ again, from running pages (needs chromium)
	@$(PY) -m pytest -q tests/pictures.py $(ARGS)

bench: $(DEV) ## run the benchmarks
	@$(PY) -m benchmarks $(ARGS)

bench-check: $(DEV) ## run the benchmarks with small sizes and name what got worse than the stored baseline
	@$(PY) -m benchmarks --quick --check benchmarks/baseline.json $(ARGS)

fmt: $(DEV) ## format the code and apply the linter's automatic fixes
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

wheel: $(DEV) ## build the wheel in dist/, with the command `rondo`
	@$(PY) -m hatchling build -t wheel

node-tools: $(NODE_PACKAGES)/.ready ## install npm's packages in .node/: the TypeScript client's and Spectral, which `make test-all` uses

node-tools-if-any: $(DEV)
	@$(MAKE) --silent node-tools 2> .venv/node-tools.log \
		|| echo "Skipping the tests of the TypeScript client and of Spectral: npm or its registry is missing (see .venv/node-tools.log)"

lock: $(DEV) ## pin what pyproject.toml names in the locks, and uv; pins that are there stay (ARGS=--upgrade renews them)
	@echo '$(LOCK_DJANGO)' > .venv/lock-django
	@cp requirements.lock .venv/lock && $(COMPILE) --constraint .venv/lock-django --output-file .venv/lock pyproject.toml
	@{ echo '$(LOCK_HEAD)'; grep -v -e '^$(LOCK_MARK)' -e '-c .venv/lock-django$$' .venv/lock; } > requirements.lock
	@cp requirements-dev.lock .venv/lock
	@$(COMPILE) --extra dev --constraint requirements.lock --output-file .venv/lock pyproject.toml
	@{ echo '$(DEV_LOCK_HEAD)'; grep -v '^$(LOCK_MARK)' .venv/lock; } > requirements-dev.lock
	@echo uv > .venv/uv.in && cp requirements-uv.lock .venv/lock && $(COMPILE) --no-annotate --output-file .venv/lock .venv/uv.in
	@{ echo '$(UV_LOCK_HEAD)'; grep -v '^$(LOCK_MARK)' .venv/lock; } > requirements-uv.lock

format-check: $(DEV)
	@echo "== format"
	@$(PY) -m ruff format --check --output-format concise .

lint: $(DEV)
	@echo "== lint"
	@$(PY) -m ruff check --output-format concise .

types: $(DEV)
	@echo "== types"
	@$(PY) -m mypy

imports: $(DEV)
	@echo "== imports"
	@.venv/bin/lint-imports

migrations: $(DEV)
	@echo "== migrations"
	@DJANGO_SETTINGS_MODULE=tests.settings_for_checks $(PY) manage.py makemigrations --check --dry-run

# what `make up` needs, and no test tool
$(READY): requirements.lock requirements-uv.lock | $(PY)
	@$(call install,.venv,requirements.lock)
	@touch $@

# all of that and what the checks, tests and benchmarks need
$(DEV): requirements-dev.lock requirements.lock requirements-uv.lock | $(PY)
	@$(call install,.venv,requirements-dev.lock)
	@touch $(READY) $@

# of the tests alone. npm compares each package with its hash in the lock
$(NODE_PACKAGES)/.ready: tests/api/typescript/package.json tests/api/typescript/package-lock.json
	@echo "Installing npm's packages into $(@D); this takes a while the first time …"
	@mkdir -p $(@D) && cp $^ $(@D)
	@npm ci --prefix $(@D) --prefer-offline --fetch-retries 1 --fetch-retry-mintimeout 1000 --fetch-timeout 30000 \
		--no-audit --no-fund --ignore-scripts --loglevel error > /dev/null
	@touch $@

# the packages of the tests, with another Django than the locks have; it comes first, since it may refuse the Python
$(DJANGO)/.ready: requirements-dev.lock
	@$(PYTHON) -m venv --clear $(DJANGO)
	@$(DJANGO)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "Django==$(VERSION).*" \
		> $(DJANGO)/pip.log 2>&1 || { \
		needs=$$(grep -oE ' $(VERSION)[0-9.]* Requires-Python [^;]*' $(DJANGO)/pip.log | head -n 1 | sed 's/.*Python //'); \
		if [ -n "$$needs" ]; then echo "Django $(VERSION) needs Python $$needs; $(PYTHON) is $$($(PYTHON) -V 2>&1). Choose another: make test-django PYTHON=python3.13"; \
		else cat $(DJANGO)/pip.log; fi >&2; exit 1; }
	@awk '/^[^ ]/ {other = !/^(#|django==)/} other' requirements-dev.lock > $(DJANGO)/lock
	@$(call install,$(DJANGO),$(DJANGO)/lock)
	@touch $@

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Rondo needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Choose another: make up PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv .venv || { \
		echo "cannot create .venv; on Debian and Ubuntu, install python3-venv"; rm -rf .venv; exit 1; }
