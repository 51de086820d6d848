# make demo | make page | make test: from nothing, on a machine with python3 (3.11 or newer) and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DATA   ?= $(PATCHBAG_DATA)

.PHONY: demo page test lint bench clean

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
	$(BIN)/ruff check --quiet src tests benchmarks conftest.py
	$(BIN)/ruff format --quiet --check src tests benchmarks conftest.py
	$(BIN)/mypy

# Each script prints our time, the peer's time and the ratio, measured in one process.
bench: $(VENV)/.installed
	@for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
