# The two commands of the README are `make demo` and `make test`; everything is installed into .venv, for the demo less than for the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.demo
STAMP := $(VENV)/.installed
INSTALL = @$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint format bench clean

demo: $(DEMO)
	@$(BIN)/toolexec demo

test: $(STAMP)
	@$(BIN)/python tests/gate.py

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP)
	@$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .coverage* build dist

$(DEMO): pyproject.toml constraints.txt requirements-demo.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing toolexec and what its demo needs into $(VENV) ..."
	$(INSTALL) -e '.[mcp,javascript,sandbox-build]' -r requirements-demo.txt
	@touch $(DEMO)

$(STAMP): $(DEMO) requirements-dev.txt
	@echo "Installing what the tests need into $(VENV) ..."
	$(INSTALL) -e '.[serve,otel,keyring,openai-agents,pydantic-ai,langchain,javascript,sandbox-build,docker,containerd,bubblewrap,egress,semantic]' -r requirements-dev.txt
	@touch $(STAMP)
