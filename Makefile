# make app                the dashboard, on http://127.0.0.1:8501
# make study              the quick study in the terminal
# make test               everything that CI runs: lint, types, tests, browser journeys
# make test-ray           of these, studies on a Ray cluster of two nodes alone
# make test-distributed   of these, training over ranks alone
# make test-faults        fifty kills and more at random moments, other faults once; counts what was lost
# make test-load          twenty browsers for five minutes, and stores that have grown
# make test-fuzz          inputs of every kind made at random, others each time: some ten minutes
# make bench              measure the product itself and print the tables of the README
# make gpu-check          try a GPU, in under eight minutes, with two files in gpu-check/: parity, peaks, times,
#                         a compiled study, DDP where there are two GPUs; not FSDP2, Ray or reinvest
# Each target makes .venv with what it needs on first use.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: app study test test-ray test-distributed test-faults test-load test-fuzz bench gpu-check screenshots
.PHONY: tools clean

app: .venv/run
	$(BIN)/streamlit run app.py

study: .venv/run
	$(BIN)/python -m recompute_core study --preset quick; code=$$?; [ $$code = 0 ] || [ $$code = 1 ] || [ $$code = 3 ]

test: .venv/dev tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --ignore=tests/browser
	$(BIN)/pytest -n 2 --dist loadfile tests/browser

test-ray: .venv/dev
	$(BIN)/pytest tests/cluster

test-distributed: .venv/dev
	$(BIN)/pytest tests/ranks

test-faults: .venv/dev tools
	$(BIN)/python -m tests.faults

test-load: .venv/dev
	$(BIN)/python -m tests.load

test-fuzz: .venv/dev
	$(BIN)/python -m tests.fuzz --inputs 1000

bench: .venv/dev
	$(BIN)/python -m tests.bench

gpu-check: .venv/run
	$(BIN)/python -m tests.gpu_check --out gpu-check

screenshots: .venv/dev tools
	$(BIN)/python -m tests.browser.screenshots

tools: .venv/dev
	$(BIN)/python -m tests.debian
	$(BIN)/python -m tests.browser.chromium
	$(BIN)/python -m tests.browser.axe

.venv/run: requirements.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

.venv/dev: .venv/run requirements-dev.txt requirements-models.txt requirements-login.txt requirements-ray.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
