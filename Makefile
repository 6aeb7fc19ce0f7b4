PYTHON ?= python3
BIN := .venv/bin

# Byte code of all that is imported lies in .venv, also where the environment asks for none: without it every process of
# the tests would compile torch and transformers again.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/bytecode

.PHONY: setup demo test lint docs bench sanitize faults clean

setup: .venv/ready-dev

# Installed again only when what is to be installed has changed. Python compiles what it imports; compiling all that was
# installed would take longer than to install it.
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
SOURCES := pyproject.toml constraints.txt hatch_build.py $(wildcard src/synthattn/engine/native/*.[ch])

.venv/bin/python:
	$(PYTHON) -m venv .venv

# What users install.
.venv/ready: $(SOURCES) | .venv/bin/python
	$(INSTALL) -e .
	touch $@

# What tests and checks need as well.
.venv/ready-dev: $(SOURCES) | .venv/bin/python
	$(INSTALL) -e '.[dev]'
	touch .venv/ready $@

# The main job on built-in data; ends with the path of a page to look at.
demo: .venv/ready
	$(BIN)/synthattn compare

# Makes the byte code of what all tests import; otherwise every process of the first tests would do it.
.venv/imported: .venv/ready-dev
	$(BIN)/python -c "import pytest, synthattn.cli.compare"
	touch $@

# Most tests run with every shape annotation checked. Those marked "unchecked" run the package as users have it:
# torch.compile cannot trace through the checks, and they would catch bad input before our own messages do. There a file
# stays in one process, because what many of its tests look at takes long to make.
test: .venv/imported
	$(BIN)/pytest -m "not unchecked"
	$(BIN)/pytest -o addopts="-q -n auto --dist loadfile --strict-markers" -m unchecked

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# The documentation as a site in site/, with warnings as errors. Reads the sources and needs no network.
docs: .venv/ready-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

.venv/ready-docs: .venv/ready
	$(INSTALL) -e '.[docs]'
	touch $@

# Speed and memory beside other libraries, on this machine. All of it takes hours on two cores; synthattn bench -h says how
# to choose a part.
bench: setup
	$(BIN)/synthattn bench

# The kernels with address and undefined-behaviour sanitizers: their tests, and 2,000 wrong calls. Some minutes.
sanitize: setup
	$(BIN)/python tools/sanitize.py

# Damaged configurations, data, checkpoints, killed runs and wrong calls: how many were tried, and how they ended.
faults: setup
	$(BIN)/python -m tools.faults

clean:
	rm -rf .venv dist build site .pytest_cache .ruff_cache .hypothesis
