# Everything a contributor needs; `make help` lists it. CI=true means: nothing may be skipped.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Stamps make the install targets free when nothing changed.
RUN_STAMP := $(VENV)/.installed-run
DEV_STAMP := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help install run test lint types proto proto-check format check simulate fuzz bench chaos lock clean sdk

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(DEV_STAMP) ## install the program and all development tools into .venv

run: $(RUN_STAMP) ## install what the server needs, then serve
	@$(BIN)/bridle serve

test: install ## run every test (ARGS="-k name" to choose)
	$(BIN)/pytest $(ARGS)

lint: install ## style, layers and sizes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_sizes.py

types: install ## mypy --strict
	$(BIN)/mypy

proto: install ## format proto/ and regenerate common/pb
	@scripts/buf.sh format
	$(BIN)/python scripts/gen_protos.py

proto-check: install ## is common/pb current, is the contract clean and compatible
	$(BIN)/python scripts/gen_protos.py --check
	@scripts/buf.sh check

format: install ## rewrite the code in house style
	$(BIN)/ruff check --fix-only --exit-zero .
	$(BIN)/ruff format .

check: lint types proto-check ## everything but the tests

chaos: install ## kill -9 a server again and again and account for everything (ROUNDS=200 SEED=...)
	$(BIN)/python -m tests.chaos --rounds $(or $(ROUNDS),200) $(if $(SEED),--seed $(SEED))

simulate: install ## run the engine through SEEDS=20000 random schedules, or replay one (SEED=123)
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),20000) --start $(or $(START),0))

fuzz: install ## send EXAMPLES=200 made-up requests to each endpoint of the gateway (SEED=... to repeat)
	FUZZ_EXAMPLES=$(or $(EXAMPLES),200) $(BIN)/pytest tests/gateway/test_fuzz.py --hypothesis-seed=$(or $(SEED),$(shell date +%s))

sdk: install ## drive the gateway with the real SDKs, ROUNDS=1 times in a row
	for round in $$(seq $(or $(ROUNDS),1)); do $(BIN)/pytest -q tests/sdk || exit 1; done

bench: install ## measure (prints figures, asserts nothing)
	$(BIN)/python -m tests.bench

# Made on the oldest Python we support, so that every pin can be installed on the newer ones too.
lock: ## renew constraints.txt from pyproject.toml
	scripts/lock.sh

clean: ## remove what the other targets made
	rm -rf examples/typescript/node_modules examples/typescript/dist examples/typescript/src/gen examples/*/gen examples/go/bridle-example examples/go-tools/bridle-tools
	rm -rf $(VENV) tools/node_modules build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find common services gateway tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Bridle needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUN_STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e .
	@touch $@

$(DEV_STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e '.[dev]'
	@touch $@ $(RUN_STAMP)
