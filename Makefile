# The two commands of the README are `make demo` and `make test`; everything is installed into .venv, for the demo less than for the tests.
# The tests have three tiers (tests/tiers.py): `make test` needs nothing but Python, `make test-full` is what CI runs, `make test-soak` is slow by nature.
PYTHON ?= python3
OLD = import sys; sys.exit(sys.version_info < (3, 11))
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.demo
STAMP := $(VENV)/.installed
DOCS := $(VENV)/.docs
# The packages beside the core; `make test PACKAGE=grpc` runs the tests of one.
PACKAGES := $(patsubst %/pyproject.toml,./%,$(wildcard packages/*/pyproject.toml))
INSTALL = @$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

PYTEST = $(BIN)/python -m pytest
TESTS = $(if $(PACKAGE),packages/$(PACKAGE)/tests)
# Tests wait nearly as much as they compute: one worker more than there are cores.
PARALLEL = -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --maxprocesses 8 --dist loadfile

# Compiled files make the second run start in half the time, whatever the machine's default is.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-full test-traced test-above test-soak report lint format docs bench bench-quick wheels release release-check kube clean

demo: $(DEMO)
	@$(BIN)/toolexec demo

# The sandbox is built before the tests, which would wait for one of them to build it.
test: $(STAMP)
	@$(BIN)/toolexec sandbox build || true
	@$(PYTEST) --tier fast $(PARALLEL) -q -o faulthandler_timeout=180 $(COVERAGE) $(TESTS)

# The fast tier runs once, and first: under coverage here, which tests/gate.py adds to.
test-full: test-traced
	@$(MAKE) test-above

test-traced: COVERAGE = --cov --cov-branch --cov-report=
test-traced: test

test-above: $(STAMP)
	@$(BIN)/python tests/gate.py $(PARALLEL) -q

test-soak: $(STAMP)
	@$(PYTEST) --tier soak -q -o faulthandler_timeout=3600

# Figures to look at; no test has a ceiling for them.
report: $(STAMP)
	@$(BIN)/python -m tests.figures

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# The documentation as a site, in build/site; what is wrong with it fails.
docs: $(DOCS)
	@$(BIN)/python -m website

bench: $(STAMP)
	@$(BIN)/python -m benchmarks $(ARGS)

bench-quick: $(STAMP)
	@$(BIN)/python -m benchmarks --quick

# The second wheel has the first one's sandbox, compiled: each names the other's content. Then those of the packages.
wheels: export TOOLEXEC_COMPILED := $(CURDIR)/build/compiled
wheels: $(DEMO)
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist . ./sandbox-wheel $(PACKAGES)

# What a release needs: one version everywhere, a site without a problem, the promises of the documents, and everything
# that is published in dist/, built twice with the same bytes and checked. TAG=v1.2.3 refuses what is still unreleased.
PROMISES := tests/test_packaging.py tests/test_public_api.py tests/test_releases.py tests/test_website.py tests/test_workspace.py tests/config/test_template.py
release-check: $(DOCS)
	@$(PYTEST) --tier fast -q $(PROMISES)
	@$(BIN)/python -m website
	@$(BIN)/python -m release build $(if $(TAG),--tag $(TAG)) $(if $(REPOSITORY),--repository $(REPOSITORY))

# Sets the version in all files and dates the changelog, then checks; committing and tagging are left to you.
release: $(DOCS)
	@test -n "$(VERSION)" || { echo "make release needs VERSION=1.2.3"; exit 1; }
	@$(BIN)/python -m release version $(VERSION)
	@$(MAKE) --no-print-directory release-check TAG=v$(VERSION)
	@echo "Now: git commit -am 'Release $(VERSION)' && git tag v$(VERSION), and push both"

# A Kubernetes control plane for tests, built once into ~/.cache/toolexec/kube; ten minutes.
kube:
	@bash packages/kubernetes/control-plane/build.sh

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .coverage* build dist

$(DEMO): pyproject.toml constraints.txt requirements-demo.txt
	@$(PYTHON) -c '$(OLD)' || { echo "toolexec needs Python 3.11 or newer; this is $$($(PYTHON) --version 2>&1): call make $(MAKECMDGOALS) PYTHON=/path/to/python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing toolexec and what its demo needs into $(VENV) ..."
	$(INSTALL) -e '.[mcp,javascript,sandbox-build]' -r requirements-demo.txt
	@touch $(DEMO)

# All in one command: an extra such as `grpc` names a package, and pip then takes the one that is here.
$(STAMP): $(DEMO) requirements-dev.txt $(wildcard packages/*/pyproject.toml)
	@echo "Installing what the tests need into $(VENV) ..."
	$(INSTALL) $(addprefix -e ,$(PACKAGES)) -e '.[all]' -r requirements-dev.txt
	@touch $(STAMP)

$(DOCS): $(STAMP) requirements-docs.txt
	@echo "Installing what the site needs into $(VENV) ..."
	$(INSTALL) -r requirements-docs.txt
	@touch $(DOCS)
