# The two commands of the README, `make reproduce` and `make test`, set up all they need in .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FEDERATION := $(VENV)/.federation
DOCS := $(VENV)/.docs
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check

# Tests start processes by the hundred, a deployed site one for every message: compile once.
unexport PYTHONDONTWRITEBYTECODE

# For `make results`.
FASHION ?= fashion-mnist.npz

.DEFAULT_GOAL := help
.PHONY: help reproduce results docs test check quick coverage lint types unit programs fuzz bench chaos lock licences format clean

help: ## List the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer is needed, none was found" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: Python 3.11 or newer is needed, got $$($(PYTHON) --version); set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pip
	$(PIP) --editable . --group dev
	@touch $(READY)

# Flower, Ray, PyTorch, Dask, Hugging Face's datasets, MLflow and more: the reproduction does without them.
$(FEDERATION): $(READY)
	$(PIP) --editable '.[flower,simulation,torch,cluster,datasets,tracking,monitoring]'
	@touch $(FEDERATION)

# Sphinx and what executes the notebooks.
$(DOCS): $(FEDERATION)
	$(PIP) --group docs
	@touch $(DOCS)

reproduce: $(READY) ## Run the main job: the paper's experiment on MNIST
	$(BIN)/fedcommons reproduce

SIMULATE := $(BIN)/fedcommons simulate --yes
results: $(FEDERATION) ## Run the studies of docs/results.md and write its tables (FASHION=file)
	@test -e "$(FASHION)" || { echo "make: set FASHION to Fashion-MNIST (.npz, or a folder of IDX files)" >&2; exit 1; }
	for name in models baselines models-paper-rate; do \
		$(SIMULATE) experiments/$$name.toml --out results/$$name-mnist && \
		$(SIMULATE) experiments/$$name.toml --data "$(FASHION)" --out results/$$name-fashion || exit 1; \
	done
	for name in estimators stragglers wrong-p; do $(SIMULATE) experiments/$$name.toml || exit 1; done
	$(BIN)/python -m experiments.results --results results

docs: $(DOCS) ## Build the documentation site: build/site/index.html
	$(BIN)/python -m sphinx --builder html --write-all --nitpicky --fail-on-warning --keep-going --quiet docs build/site
	@echo "open build/site/index.html"

test: check ## Set up everything and pass the tests

check: lint types unit ## What CI runs: format, lint, types, tests

QUICK := -m "not processes and not browser and not wheel"
quick: $(FEDERATION) lint ## While you work: lint, and the tests without processes or a browser
	$(BIN)/pytest -n 2 --dist worksteal $(QUICK)

coverage: $(FEDERATION) ## The quick tests, and the lines that they miss (htmlcov/index.html)
	$(BIN)/pytest -n 2 --dist worksteal $(QUICK) --cov --cov-report=term --cov-report=html

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(FEDERATION)
	$(BIN)/mypy

unit: $(DOCS) programs
	$(BIN)/pytest -n 6 --dist worksteal

# Tests drive a real Chromium and a real nginx. What is missing and can be installed, is.
programs:
	@{ command -v chromium && command -v nginx; } >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		echo "installing chromium and nginx for the tests" && apt-get update -qq && \
		apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core nginx-light >/dev/null; } || \
		echo "no chromium or no nginx: their tests are skipped"

FUZZ_CASES ?= 20000
fuzz: $(FEDERATION) ## Damage files by the ten thousand, and see each refused by its name
	FUZZ_CASES=$(FUZZ_CASES) FUZZ_SEED=$${FUZZ_SEED:-$$(date +%s)} \
		$(BIN)/pytest -n 2 --dist worksteal tests/fuzz

bench: $(FEDERATION) ## Measure speed and memory, ours and peers'
	@mkdir -p results
	$(BIN)/python benchmarks/placement.py --json results/benchmark-placement.json
	$(BIN)/python benchmarks/reproduction.py --json results/benchmark-reproduction.json
	$(BIN)/python benchmarks/models.py --json results/benchmark-models.json
	$(BIN)/python benchmarks/clients.py --json results/benchmark-clients.json
	$(BIN)/python benchmarks/ticks.py --json results/benchmark-ticks.json
	$(BIN)/python benchmarks/federation.py --json results/benchmark-federation.json
	$(BIN)/python benchmarks/deadlines.py --json results/benchmark-deadlines.json
	$(BIN)/python benchmarks/size.py --json results/benchmark-size.json
	$(BIN)/python benchmarks/adoption.py --json results/benchmark-adoption.json
	$(BIN)/python benchmarks/deployment.py --json results/benchmark-deployment.json
	$(BIN)/python benchmarks/exchange.py --json results/benchmark-exchange.json
	$(BIN)/python benchmarks/proxy.py --json results/benchmark-proxy.json

chaos: $(FEDERATION) ## Kill processes of a real federation at random, and see that nothing is lost
	@mkdir -p results
	$(BIN)/python benchmarks/chaos.py --seed $${CHAOS_SEED:-0} --json results/benchmark-chaos.json

# What CI installs where nothing may have been exchanged on its way. Without PyTorch, of which there
# are several builds of one version, each with hashes of its own.
lock: $(READY) ## Write requirements.lock: the pins of constraints.txt with their hashes
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --generate-hashes \
		--extra flower --extra simulation --extra cluster --extra datasets \
		--extra tracking --extra monitoring --group dev --group docs --constraint constraints.txt \
		--custom-compile-command "make lock" --output-file requirements.lock pyproject.toml

licences: $(FEDERATION) ## Write docs/licences.md: what fedcommons depends on, under which licences
	$(BIN)/python .ci/licences.py > docs/licences.md

format: $(READY) ## Format the code and mend what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov
