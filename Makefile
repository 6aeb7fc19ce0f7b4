PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test lint bench clean

setup: .venv/ready

# Installed again only when what is to be installed has changed.
.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/python examples/layer.py

# torch.compile cannot trace through the shape checks that the other tests run under, hence two runs.
test: setup
	$(BIN)/pytest tests --ignore=tests/compiled
	$(BIN)/pytest -o addopts="-q --strict-markers" tests/compiled

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: setup
	$(BIN)/python benchmarks/attention.py

clean:
	rm -rf .venv dist build .pytest_cache .ruff_cache .hypothesis
