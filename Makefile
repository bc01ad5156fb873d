# Plain `make` lists the targets. Everything is installed into .venv, nothing outside it.
#
#   PYTHON    the Python to build .venv with; otherwise the first usable one of PYTHONS
#   PIP_ARGS  added to pip install; README says what a Linux user can save with it
#   ARGS      added to the command behind `make run`, `lab`, `workbook` and `notebooks`
#   WHEELS    folder of packages for machines without a network

SHELL := /bin/sh
VENV ?= .venv
PYTHON ?=
PYTHONS := python3.11 python3.12 python3.13 python3
PIP_ARGS ?=
ARGS ?=
WHEELS ?= wheelhouse

BIN := $(VENV)/bin
DEV := $(VENV)/.installed-dev
# What the lab needs is part of what the checks need: once dev is there, lab is not installed again.
LAB := $(or $(wildcard $(DEV)),$(VENV)/.installed-lab)

FAST := not slow and not probe and not full and not browser
SLOW := (slow or probe) and not full and not browser

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-fast test-full lab workbook notebooks bench lint clean wheelhouse \
  install-offline

help:
	@echo "Targets:"
	@grep -E '^[a-z-]+:.*## ' Makefile | awk -F ':.*## ' '{ printf "  make %-15s %s\n", $$1, $$2 }'
	@echo "Options: PYTHON=python3.12   PIP_ARGS=\"...\"   ARGS=\"...\" (see the top of the Makefile)"

run: $(LAB) ## train the agent from the shipped warm start into a new folder under runs/
	$(BIN)/agentrl-lab train $(ARGS)

test: test-fast ## the checks: test-fast, then the slow tests, the notebooks and the browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadscope --timeout 900 -m "$(SLOW)"
	$(BIN)/python -m pytest -q --timeout 900 -m browser

test-fast: $(DEV) ## lint, import contracts, unit tests; about a minute
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q -n 2 --timeout 120 -m "$(FAST)"

test-full: $(DEV) ## every test there is; up to an hour
	$(BIN)/python -m pytest -q --timeout 3600

lab: $(LAB) ## open the workbook in JupyterLab, on a copy of the notebooks that is yours
	$(BIN)/agentrl-lab lab $(ARGS)

workbook: $(LAB) ## run all notebooks without a browser and report what moved
	$(BIN)/agentrl-lab workbook $(ARGS)

notebooks: $(DEV) ## build the notebooks from notebooks/src, and the figures of README
	$(BIN)/python notebooks/build.py $(ARGS)
	$(BIN)/python notebooks/figures.py $(filter --check,$(ARGS))

bench: $(DEV) ## measure speed on this machine; writes build/bench.json
	@mkdir -p build
	$(BIN)/python -m tests.benchmarks.bench

lint: $(DEV) ## ruff, import contracts, spelling
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

clean: ## remove build/ and caches; keeps .venv and runs/
	rm -rf build .pytest_cache .hypothesis .ruff_cache .import_linter_cache *.egg-info
	find agentrl_lab tests -name __pycache__ -type d -prune -exec rm -rf {} +

wheelhouse: $(VENV)/.created ## fetch all packages into wheelhouse/, for machines without a network
	$(BIN)/python -m pip wheel $(PIP_ARGS) -c constraints.txt -w $(WHEELS) ".[lab]" "setuptools>=77"
	rm -f $(WHEELS)/agentrl_lab-*.whl  # the project itself is installed from its own folder

install-offline: $(VENV)/.created ## install from wheelhouse/ and nothing else; then `make lab`
	@test -d $(WHEELS) || { echo "$(WHEELS)/ is not here: copy the one that \`make wheelhouse\` made \
	on a machine with the same system and Python" >&2; exit 1; }
	$(BIN)/python -m pip install --no-index --find-links $(WHEELS) -c constraints.txt -e ".[lab]"
	@touch $(VENV)/.installed-lab

USABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

# A name on the PATH is not yet a Python that runs (version managers leave such names): try each one.
$(VENV)/.created:
	@for python in $(if $(PYTHON),"$(PYTHON)",$(PYTHONS)); do \
	  if "$$python" -c "$(USABLE)" >/dev/null 2>&1; then \
	    echo "$$python -m venv $(VENV)"; \
	    "$$python" -m venv "$(VENV)" && touch "$@"; exit $$?; \
	  fi; \
	done; \
	echo "No usable Python 3.11 or newer with venv among: $(or $(PYTHON),$(PYTHONS))." \
	  "Install one (Debian and Ubuntu: also python3-venv) or name it: make PYTHON=/path/to/python3.11" >&2; \
	exit 1

$(VENV)/.installed-lab: $(VENV)/.created pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(PIP_ARGS) -c constraints.txt -e ".[lab]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.created pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(PIP_ARGS) -c constraints.txt -e ".[lab,dev]"
	@touch $@
