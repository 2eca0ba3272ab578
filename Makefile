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

.PHONY: setup demo site test test-all lowest lint bench clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/attnscope reproduce aitken2021 --only fig2-aed --profile quick --store demo
	@echo "Open demo/report.html in a browser."

site: $(READY)
	rm -rf site
	$(BIN)/attnscope site results --project . --out site
	@echo "Open site/index.html in a browser."

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

clean:
	rm -rf $(VENV) $(VENV)-lowest demo runs site
