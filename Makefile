# `make help` lists the targets. Everything is made inside this folder: .tools (uv), .venv (the
# environment), .dmls (the embedded platform's state).
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# Triton's server for machines without its image knows 3.11 and 3.12: those first, whatever `python3` is.
first_python = for p in $(1); do $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, $(2)))' \
  2>/dev/null && $$p -c 'import sys; print(sys.executable)' && break; done
PYTHON ?= $(or $(shell $(call first_python,python3 python3.12 python3.11,13)),\
  $(shell $(call first_python,python3 python3.13 python3.14,15)))

UV := .tools/uv/bin/uv
VENV := .venv
BIN := $(VENV)/bin
# Bytecode is compiled once, at installation: where Python may not write it later
# (PYTHONDONTWRITEBYTECODE), each start of Airflow or MLflow would compile a thousand files again.
export UV_COMPILE_BYTECODE := 1

.PHONY: help setup demo up down doctor test test-all unit tier chaos compose-check lint format lock docs sbom images clean \
  distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

$(UV): requirements/uv.txt requirements/fetch_uv.sh
	@test -n "$(PYTHON)" || { echo "no Python 3.11 to 3.14 on the PATH: install one, or make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "fetching uv into .tools"
	@requirements/fetch_uv.sh "$(PYTHON)" .tools/uv
	@touch $@

$(VENV)/.made: requirements/dev.txt pyproject.toml | $(UV)
	@test -x $(BIN)/python || $(UV) venv --quiet --python "$(PYTHON)" $(VENV)
	@echo "installing the locked packages into $(VENV)"
	@$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.txt
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q dmls_core
	@touch $@
	@echo "done: $(BIN)/dmls --help"

setup: $(VENV)/.made ## build .venv (and with it .venv/bin/dmls)

demo: setup ## the iris spec from a dropped file to a served model; ONCE=1 stops the platform afterwards
	@$(BIN)/dmls demo $(if $(ONCE),--once)

up: setup ## start the embedded platform
	@$(BIN)/dmls up

down: setup ## stop the embedded platform
	@$(BIN)/dmls down

doctor: setup ## what this machine has and what it lacks
	@$(BIN)/dmls doctor

lint: setup ## ruff, mypy, import-linter, spelling, and the other pre-commit hooks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	@if git rev-parse --git-dir >/dev/null 2>&1; then \
	  SKIP=ruff-check,ruff-format,mypy,import-linter,codespell $(BIN)/pre-commit run --all-files --show-diff-on-failure; fi

format: setup ## format, and fix what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

coverage = $(if $(COVERAGE),--cov=dmls_core --cov-report=term --cov-report=html:build/coverage)

unit: setup ## the tests that need no services; COVERAGE=1 writes a report to build/coverage
	$(BIN)/pytest -n $(UNIT_WORKERS) tests/unit $(coverage)

tier: setup ## the tests of one tier: make tier TIER=service (or e2e, docker, faults, gpu, and expressions of these)
	$(run_tests) -m "$(TIER)"

# One worker waits for Airflow most of the time, so that three keep two cores busy.
WORKERS ?= 3
UNIT_WORKERS ?= auto
# A hang is interrupted after TEST_TIME, so that pytest still cleans up and says where it was.
TEST_TIME ?= 75m
run_tests = timeout --foreground -s INT -k 2m $(TEST_TIME) $(BIN)/pytest -n $(WORKERS) $(coverage) \
  $(if $(RERUNS),--reruns $(RERUNS)) $(if $(DURATIONS),--record-durations)

# lint and docs run beside the tests, which wait for services now and then.
define test_with_checks
	@mkdir -p build
	@$(MAKE) --no-print-directory lint docs >build/checks.log 2>&1 & checks=$$!; \
	  $(run_tests) $(1); tests=$$?; \
	  wait $$checks || { cat build/checks.log; echo "make lint or make docs failed: see above"; exit 1; }; exit $$tests
endef

test: setup ## lint, docs, and all tests but the nightly ones, on real services; RERUNS=1 repeats a failed test, DURATIONS=1 records durations
	$(call test_with_checks,-m "not nightly")

test-all: TEST_TIME = 180m
test-all: setup ## lint, docs, and every test
	$(call test_with_checks)

MINUTES ?= 10
chaos: setup ## faults on a platform of its own for MINUTES=10: kills, stops, a full disk, lost packets; a ledger shows what was lost
	$(BIN)/python tests/bench/chaos.py --minutes $(MINUTES)

# Not --quiet: mkdocs counts only warnings that it prints.
docs: setup ## write the generated reference pages and build the site into build/site, without network
	@for script in docs/*_reference.py; do $(BIN)/python $$script || exit 1; done
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

sbom: setup ## write the packages of each image as CycloneDX documents into build/sbom
	@requirements/write_sbom.sh $(BIN)/cyclonedx-py build/sbom airflow mlflow trainer-cpu trainer-gpu

images: sbom ## build the trainer image (dmls-trainer:cpu) with the Docker engine at hand, and the SBOMs
	docker build --target cpu --tag dmls-trainer:cpu --file images/trainer/Dockerfile .

IMAGES ?= built
compose-check: setup ## start the compose stack, train, restart, restore a backup; IMAGES=mounted builds the trainer's image alone
	DMLS_COMPOSE_CHECK=$(IMAGES) $(BIN)/pytest tests/e2e/test_compose_stack.py

# Versions stay as they are unless UPGRADE=1, or UPGRADE_PACKAGE=name.
compile = $(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url \
  --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) $(addprefix --upgrade-package ,$(UPGRADE_PACKAGE))
# jsonschema imports it where it is installed, to check IRIs: a second of CPU time at each start of Airflow.
slow_to_import = --no-emit-package rfc3987-syntax --no-emit-package lark
# What runs side by side holds the same versions.
agreeing = $(compile) --python-version 3.11 --constraint requirements/dev.txt

lock: $(UV) ## resolve requirements/*.txt again; UPGRADE=1 takes the newest versions
	$(compile) --python-version 3.11 requirements/uv.in --output-file requirements/uv.txt
	$(compile) --python-version 3.11 pyproject.toml --extra airflow --extra kubernetes --extra lake --extra trainer --extra dask --extra platform --extra onnx --extra dev \
	  $(slow_to_import) --output-file requirements/dev.txt
	$(agreeing) pyproject.toml --extra airflow --extra trainer --extra dask --extra platform --output-file requirements/platform.txt
	$(agreeing) pyproject.toml requirements/airflow.in --extra airflow --output-file requirements/airflow.txt
	$(agreeing) pyproject.toml --extra trainer --extra dask --output-file requirements/trainer-cpu.txt
	$(agreeing) requirements/mlflow.in --output-file requirements/mlflow.txt
	$(agreeing) requirements/build.in --output-file requirements/build.txt
	$(compile) --python-version 3.12 pyproject.toml --extra gpu-trainer --output-file requirements/trainer-gpu.txt
	$(compile) --python-version 3.11 --no-deps requirements/triton.in --output-file requirements/triton.txt
	$(compile) --python-version 3.11 --no-deps --constraint requirements/trainer-gpu.txt requirements/nvforest.in \
	  --output-file requirements/nvforest.txt

clean: ## delete caches and builds
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	find . -path ./$(VENV) -prune -o -path ./.tools -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## delete the environment, the tools and the platform's state too (stops the platform first)
	@test ! -x $(BIN)/dmls || $(BIN)/dmls down
	rm -rf $(VENV) .tools .dmls
