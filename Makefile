# make benchmark   every rung at the full payload, then the chart     (about 7 minutes on two cores)
# make quick       the headline rungs, a quarter of it, few trips     (about a minute)
# make test        the tests                                          (about 6 minutes)
# make lint        ruff and mypy
# make publish     RECORDS="results/published/*.json": redraw img/ and the README's table

PYTHON ?= python3
PY := .venv/bin/python
STORE := $(PY) simulate_chat_learn_data_flow.py
GRAPH := $(PY) ray_cg_simulate_chat_learn_data_flow.py
RUN := results/run-$(shell date -u +%Y%m%dT%H%M%SZ)
RECORDS ?= results/published/*.json
# Exit code 2 is a rung that this machine has to waive (no GPU for each role); its record says why.
WAIVABLE := || test $$? -eq 2

.PHONY: benchmark quick test lint publish clean
.DELETE_ON_ERROR:

benchmark: .venv/installed
	$(STORE) --transport driver-queue --iterations 100 --output $(RUN)/driver-queue.json
	$(GRAPH) --transport zero-copy --iterations 100 --output $(RUN)/zero-copy.json
	$(STORE) --transport payload-queue --iterations 10 --output $(RUN)/payload-queue.json
	$(STORE) --transport ref-queue --iterations 20 --output $(RUN)/ref-queue.json
	$(STORE) --transport refs --iterations 20 --output $(RUN)/refs.json
	$(STORE) --transport refs --zero-copy --iterations 30 --output $(RUN)/refs-zero-copy.json
	$(GRAPH) --transport pickle --iterations 20 --output $(RUN)/pickle.json
	$(GRAPH) --transport shm --iterations 30 --output $(RUN)/shm.json
	$(GRAPH) --transport nccl --iterations 100 --output $(RUN)/nccl.json $(WAIVABLE)
	$(PY) plot_results.py $(RUN)/*.json --output-dir $(RUN)

quick: QUICK := --batch-size 256 --iterations 3 --warmup 1
quick: .venv/installed
	$(STORE) --transport driver-queue $(QUICK) --output $(RUN)/driver-queue.json
	$(STORE) --transport ref-queue $(QUICK) --output $(RUN)/ref-queue.json
	$(GRAPH) --transport shm $(QUICK) --output $(RUN)/shm.json
	$(GRAPH) --transport zero-copy $(QUICK) --output $(RUN)/zero-copy.json
	$(PY) plot_results.py $(RUN)/*.json --output-dir $(RUN)

test: .venv/installed
	$(PY) -m pytest

lint: .venv/installed
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

publish: .venv/installed
	$(PY) plot_results.py $(RECORDS) --readme

.venv/installed: requirements.txt
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache results/run-* results/*.json
