# The two commands of the README are `make demo` and `make test`; everything is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint format bench clean

demo: $(STAMP)
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

$(STAMP): pyproject.toml constraints.txt requirements-dev.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing toolexec and what its demo and tests need into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[serve,otel,keyring,openai-agents,pydantic-ai,langchain,javascript,sandbox-build]' -r requirements-dev.txt
	@touch $(STAMP)
