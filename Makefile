# Each target sets up its own virtual environment when it is missing or older than the project's requirements.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOWEST := $(VENV)-lowest/bin

# Corpora for the tests marked `corpus`; they are run when the folder is there.
CORPORA := $(wildcard ../shared/data)
ifneq ($(CORPORA),)
export ATTNSCOPE_DATA ?= $(abspath $(CORPORA))
endif

.PHONY: setup demo site tables test test-all lowest lint bench lock dist clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/attnscope reproduce aitken2021 --only fig2-aed --profile quick --store demo
	@echo "Open demo/report.html in a browser."
	@echo "Edit the attention of the network that was just trained:"
	@echo "    $(BIN)/attnscope explore $$(ls -t demo/runs | head -1) --store demo"

# The documentation, the notebooks with their output, and under results/ the gallery of all studies.
site: $(READY) $(patsubst %.py,%.ipynb,$(wildcard notebooks/*.py))
	rm -rf site
	$(BIN)/python -m sphinx -q -W --keep-going -c docs -d $(VENV)/doctrees . site
	$(BIN)/attnscope site results --out site/results --home ../docs/index.html
	@echo "Open site/index.html in a browser."

# Tables of the documentation that follow from files under results/.
tables: $(READY)
	$(BIN)/python docs/tables.py

notebooks/%.ipynb: notebooks/%.py | $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m jupytext --quiet --to ipynb --set-kernel python3 --execute $<

# Everything but the tests marked `slow`.
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-all: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile

lowest:
	test -x $(LOWEST)/python || $(PYTHON) -m venv $(VENV)-lowest
	$(LOWEST)/python -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt torch
	$(LOWEST)/python -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e '.[hf,ray,text]' \
		beartype hypothesis pytest pytest-timeout pytest-xdist
	$(LOWEST)/python -m pytest -n 2 --dist loadfile -W ignore::pytest.PytestUnraisableExceptionWarning  # Ray's open files

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m benchmarks

# The tested set of packages with their hashes: what the virtual environment has of the package's requirements.
lock: $(READY)
	$(BIN)/python -m pip freeze --exclude-editable > $(VENV)/freeze.txt
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed --report $(VENV)/lock.json \
		-c $(VENV)/freeze.txt '.[dev]'
	$(BIN)/python lock.py < $(VENV)/lock.json > constraints-hashes.txt

# The wheel and the source distribution.
dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --outdir dist

clean:
	rm -rf $(VENV) $(VENV)-lowest demo runs site jupyter_execute dist notebooks/*.ipynb
