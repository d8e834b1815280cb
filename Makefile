# make benchmark   every row at the full payload, then the chart      (about ten minutes on two cores)
# make quick       the headline rows, a quarter of it, few trips      (about a minute)
# make published   five runs of every row, as for results/published   (about fifty minutes)
# make stages      where the time goes: the main rows traced          (about 5 minutes)
# make hops        the microbenchmarks of small messages              (about 7 minutes)
# make chatlearn   ChatLearn's own messages and episodes              (about 9 minutes)
# make in-flight   what several trips under way are worth             (about 8 minutes)
# make sweeps      rows by bytes and tensors, for choose_transport.py (about 25 minutes)
# make held-out    flows that the sweeps do not know, to check it     (about 8 minutes)
# make gpu         all that a machine with GPUs can run there         (under 25 minutes)
# make test        the tests                                          (about 10 minutes)
# make unit        those that start nothing                           (about a minute)
# make lint        ruff and mypy
# make publish     redraw img/ and the tables of README.md and docs/ from results/published

PYTHON ?= python3
PY := .venv/bin/python
RECORDS ?= results/published

.PHONY: benchmark quick published stages hops chatlearn in-flight sweeps held-out gpu test unit lint publish clean
.DELETE_ON_ERROR:

benchmark quick stages hops chatlearn in-flight sweeps held-out gpu: .venv/installed
	$(PY) benchmark.py $@

published: .venv/installed
	$(PY) benchmark.py benchmark --runs 5

test: .venv/installed
	$(PY) -m pytest -n 2 --dist worksteal

unit: .venv/installed
	$(PY) -m pytest -n 2 --dist worksteal -m "not runs"

lint: .venv/installed
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

publish: .venv/installed
	$(PY) plot_results.py $(RECORDS) --publish

.venv/installed: requirements.txt
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.txt
# NIXL asks for packages of every CUDA; where it cannot be had its rows are waived.
	-$(PY) -m pip install --quiet --disable-pip-version-check --no-deps nixl==1.5.1 nixl-cu12==1.5.1
# pip would compile one file after the other. Some are of other Pythons and cannot be compiled.
	$(PY) -m compileall -qq -j 0 .venv/lib || true
	touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache results/run-* results/*.json
