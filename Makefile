# Two commands on a fresh Debian machine: `make demo` and `make test`. Both are safe to repeat.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SCALE ?= 0.05
# Each has servers of its own: with their files about 5 GB, so that four need more than 24. Tests wait now and then: a third keeps two cores busy.
TESTERS ?= 3
# Of `make packages`: those that we support, or these.
PYTHONS ?=
# Of `make bench-versions`: pairs of blocks.
ROUNDS ?= 40

.PHONY: demo quick test chaos check bench bench-versions bench-growth audit-measure rewrite-measure javascript packages soak fresh format docs sbom screenshots servers site clean

demo: $(VENV)/demo
	$(BIN)/tripstore demo

# Before every commit: no servers are started. Types of what changed alone, as mypy keeps the others.
quick: check
	$(BIN)/pytest --quick --numprocesses $(TESTERS) --dist worksteal --quiet tests/unit tests/contract

PYTEST := TRIPSTORE_SCALE=$(SCALE) $(BIN)/pytest --dist worksteal --durations 40

test: $(VENV)/test servers
	$(PYTEST) --numprocesses $(TESTERS) tests --ignore tests/chaos --ignore tests/explorer

# After a change of a protocol: processes and servers that die under load, and every order of every step.
chaos: $(VENV)/test servers
	$(PYTEST) --numprocesses $(TESTERS) tests/chaos tests/explorer

check: $(VENV)/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/peers servers
	$(BIN)/python -m benchmarks

# Puts through the facade, capture and relay of this tree against those of a revision: `make bench-versions BEFORE=HEAD~50`.
bench-versions: $(VENV)/test servers
	@test -n '$(BEFORE)' || { echo 'Say what to compare with: make bench-versions BEFORE=REVISION'; exit 2; }
	$(BIN)/python -m benchmarks.versions '$(BEFORE)' . --rounds $(ROUNDS)

# What grows with a company's data, and how, as tables of Markdown: all subjects, or SUBJECTS='row queue'.
bench-growth: $(VENV)/test servers
	$(BIN)/python -m benchmarks.growth $(SUBJECTS)

# Recall and precision of `audit code` in checkouts of public code bases: `make audit-measure CHECKOUTS=folder`; without it, which ones.
audit-measure: $(VENV)/test
	$(BIN)/python -m tests.public.audited $(CHECKOUTS) $(PLACES)

# What `audit rewrite` would do in checkouts of public code bases, and 100 of its changes to read: `make rewrite-measure CHECKOUTS='folder folder'`.
rewrite-measure: $(VENV)/test
	$(BIN)/python -m tests.public.rewritten $(CHECKOUTS)

# A client in JavaScript, generated from the OpenAPI document, against the contract of cells. Needs node and npm.
javascript: $(VENV)/test
	$(BIN)/python -m tests.javascript

# Wheel and sdist, made twice to the same bytes, in empty environments of every Python that we support.
packages: $(VENV)/demo
	$(BIN)/pip install --quiet --constraint constraints.txt setuptools
	$(BIN)/python -m tests.packages $(foreach version,$(PYTHONS),--python $(version))

soak: $(VENV)/peers servers
	$(BIN)/python -m tests.soak

# Both commands, twice, in a minimal Debian made for it (as root; about 10 GB of disk for the time). Another Debian, and another command,
# for a Python that this machine has not: `make fresh SUITE=sid COMMANDS=packages PYTHONS=3.14 ROUNDS=1`.
fresh:
	SCALE=$(SCALE) TESTERS=$(TESTERS) PYTHONS=$(PYTHONS) tests/fresh.sh

format: $(VENV)/test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/test
	$(BIN)/python -m tripstore.cli.reference > docs/reference/cli.md
	$(BIN)/python -m tripstore.cli.python_reference > docs/reference/python.md
	$(BIN)/python -m tripstore.migration.rights.reference > docs/reference/rights.md

# CycloneDX, from the constraints; a test compares.
sbom:
	$(PYTHON) .ci/sbom.py > sbom.cdx.json

# The pages of docs/ as a site that needs no server: build/site/index.html. A link to nowhere ends it.
site: $(VENV)/test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean

# The pictures of the pages, of a migration on real servers in Chromium. Look at each before you commit it.
screenshots: $(VENV)/test servers
	TRIPSTORE_SCREENSHOTS=docs/images $(BIN)/pytest --quiet tests/acceptance/docs/test_screenshots.py

servers: $(VENV)/test
	$(BIN)/python -m tripstore.local.install

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or later is needed"'
	$(PYTHON) -m venv $(VENV)

# Rebuilt when what is installed changes; the code itself is installed in place, where type checkers find it, too.
IN_PLACE := --constraint constraints.txt --config-settings editable_mode=compat --editable

$(VENV)/demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet $(IN_PLACE) '.[demo]'
	touch $@

$(VENV)/test: $(VENV)/demo
	$(BIN)/pip install --quiet $(IN_PLACE) '.[demo,test,check]'
	touch $@

$(VENV)/peers: $(VENV)/test
	$(BIN)/pip install --quiet $(IN_PLACE) '.[demo,test,check,peers]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .soak build dist *.egg-info
