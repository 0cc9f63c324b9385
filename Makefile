# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
PIP_FLAGS ?=
# Wheels of PyTorch differ by platform; point pip at yours with PIP_FLAGS="--index-url ...".
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TEST_JOBS ?= 2

# Folder of the data of the experiments, a folder a set.
ROOT ?= data

.PHONY: help demo test test-all lint format reference benchmark experiments clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "leanbayes needs Python >= 3.11, found " + sys.version.split()[0] + "; run: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --no-compile $(PIP_FLAGS) $(TORCH)
	$(BIN)/python -m pip install -q --no-compile $(PIP_FLAGS) -c constraints.txt -e '.[report,dev]'
	@touch $@

demo: $(READY)  ## the main job on embedded real data: convert, fine-tune, compare
	$(BIN)/leanbayes demo

# One thread a worker: small tensors lose more to thread hand-over than they gain.
test: $(READY)  ## the test suite that CI runs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(TEST_JOBS) -m "not slow"

test-all: $(READY)  ## every test, the slow ones and those on shared data too
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(TEST_JOBS)

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## apply the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: $(READY)  ## write docs/methods.md and docs/reference.md from the docstrings
	$(BIN)/python tools/make_reference.py

benchmark: $(READY)  ## cost of a step and of a prediction against the deterministic net
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/step_cost.py

experiments: $(READY)  ## hours: the papers' experiments on the data under ROOT
	$(BIN)/leanbayes experiment toy --out results/toy.json --picture results/toy.png
	$(BIN)/leanbayes experiment adversarial-ood --out results/adversarial_ood.json \
		--picture results/adversarial_ood.png
	$(BIN)/leanbayes experiment uci --root $(ROOT)/uci --out results/uci.json
	$(BIN)/leanbayes compare physionet2012 --root $(ROOT)/physionet2012 \
		--config results/configs/physionet.toml --samples 25 --out results/physionet.json --methods \
		map,batch_ensemble,mean_field,bayesian_embeddings,rank1_normal,rank1_cauchy,ensemble
	$(BIN)/leanbayes compare camvid --root $(ROOT)/camvid --config results/configs/camvid.toml \
		--seeds 1 --methods map,partial,mean_field,ensemble --out results/camvid.json

clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache dist
