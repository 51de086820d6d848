# make demo | make page | make test: from nothing, on a machine with python3 (3.11 or newer) and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DATA   ?= $(PATCHBAG_DATA)

.PHONY: demo page test lint bench fuzz clean

demo: $(VENV)/.installed
	$(BIN)/patchbag demo

# the page, on tiles of photographs that come with scikit-image and scikit-learn
page: $(VENV)/.installed
	$(BIN)/python -c "from pathlib import Path; from patchbag.demo import cut_unsorted; cut_unsorted(Path('patchbag-demo/unsorted'))"
	$(BIN)/patchbag serve patchbag-demo/unsorted

# style, types, tests and the examples in docstrings
test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.installed
	$(BIN)/ruff check --quiet src tests benchmarks fuzz conftest.py
	$(BIN)/ruff format --quiet --check src tests benchmarks fuzz conftest.py
	$(BIN)/mypy

# Each script prints our time, the peer's time and the ratio, measured in one process.
bench: $(VENV)/.installed
	@for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# Hostile files, kills and extremes; each campaign goes on where its journal ends.  FUZZ_SECONDS is for each of them.
FUZZ_SECONDS ?= 60
FUZZ_JOBS ?= 1
fuzz: $(VENV)/.installed
	@mkdir -p .fuzz; failed=0; for script in models folders images bombs kills page numerics; do \
		$(BIN)/python fuzz/$$script.py --seconds $(FUZZ_SECONDS) --jobs $(FUZZ_JOBS) --journal .fuzz/$$script.jsonl || failed=1; done; exit $$failed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
