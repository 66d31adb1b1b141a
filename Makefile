# Each recipe is a plain command that works without make as well; README.md shows them.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: sweep test test-all check bench docs pictures regenerate package gpu compat clean

sweep: .venv/installed ## Install, then run the main job. ARGS="--name second" for a second run.
	$(BIN)/python -m sweep run search_spaces/lr_wd_aug.yaml $(ARGS)

test: .venv/installed-test ## Install, then run the checks and the tests that a person waits for.
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not exhaustive" --durations=25 $(ARGS)

test-all: .venv/installed-test ## All tests but those that take hours.
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not exhaustive" --durations=25 $(ARGS)

check: .venv/installed-test ## Formatting, lint, types and layers, without the tests.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/installed-test ## The main job's trials in sweep, in a loop of plain Keras, and as bare Model.fit.
	$(BIN)/python benchmarks/overhead.py --only sweep,loop,fit --trials 27 $(ARGS)

docs: .venv/installed-docs ## The documentation site, into build/site; warnings are errors.
	$(BIN)/mkdocs build --quiet --strict

pictures: .venv/installed-test ## The documentation's pictures, of a real sweep; the report's needs Chromium on the PATH.
	$(BIN)/python tools/pictures.py

regenerate: .venv/installed-test ## Write anew what follows from the code: tables of the sweep file's page, its schema, its error messages.
	SWEEP_REGENERATE=1 $(BIN)/python -m pytest -q tests/spec/test_sweep_file_docs.py tests/spec/test_examples.py tests/spec/test_wrong_files.py

package: .venv/installed-test ## The source distribution and the wheel, into dist.
	$(BIN)/python -m build

gpu: .venv/installed-gpu ## On a machine with a GPU: all that only a GPU can show, into build/gpu/results.md. WHEELS=DIR installs without an index.
	$(BIN)/python tools/gpu_day.py $(ARGS)

compat: ## The fast tests against the newest releases that pip offers beyond the pins, and what broke. PIP_PRE=1: release candidates too.
	$(PYTHON) -m venv --clear .venv-compat
	$(PYTHON) tools/compat.py requirements > .venv-compat/requirements.txt
	.venv-compat/bin/python -m pip install --upgrade --upgrade-strategy eager -r .venv-compat/requirements.txt
	.venv-compat/bin/python -m pip install --no-deps -e .
	.venv-compat/bin/python tools/compat.py run $(ARGS)

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -c constraints.txt -e .
	touch $@

.venv/installed-docs: .venv/installed
	$(BIN)/python -m pip install -c constraints.txt -e ".[docs]"
	touch $@

.venv/installed-test: .venv/installed
	$(BIN)/python -m pip install -c constraints.txt -e ".[test]"
	touch $@

.venv/installed-gpu: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(if $(WHEELS),--no-index --find-links "$(WHEELS)") -c constraints.txt -e ".[test,gpu]"
	touch $@

clean:
	rm -rf .venv .venv-compat build dist *.egg-info
