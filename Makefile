# make quick       seven configurations at a quarter of the payload    (three minutes after installing)
# make headline    the demo's flow in ten configurations, for README.md (five minutes)
# make benchmark   every configuration at the full payload             (ten minutes on two cores)
# make published   five runs of all suites of one node but quick and soak (several hours), into results/run-published
# make stages      where the time goes: the main configurations traced (six minutes)
# make hops        the microbenchmarks of small messages               (nine minutes)
# make chatlearn   ChatLearn's own messages and episodes               (ten minutes)
# make in-flight   several iterations in flight                        (four minutes)
# make weights     updates of a model, from trainers to rollouts       (15 minutes)
# make detached-ppo experience makers and trainers                     (five minutes)
# make pipeline    schedules of pipeline-parallel training           (seven minutes)
# make zero        collectives of ZeRO, and the bytes that they send    (three minutes)
# make peers       ZeroMQ, Arrow Flight, TransferQueue                  (five minutes)
# make cluster     two and three nodes on this machine, at 1 to 25 Gbit/s (as root)
# make soak        10,000 iterations, and 500 of the full payload
# make faults      more than 40 faults and 40 hostile uses, and what runs say, keep and leave behind
# make sweeps      time by bytes and by tensors of a message            (ten minutes)
# make retained-memory from which size of a message on --retain-memory helps (five minutes)
# make gpu         everything that a machine with GPUs can run         (25 minutes)
# make test        all tests except the long ones, which make test-all runs too; make unit: those that start nothing
# make test-optional the tests that need the systems of make peers, or a browser; others skip them
# make lint        ruff and mypy
# make publish     regenerate img/ and the tables of README.md and docs/ from results/published

PYTHON ?= python3
PY := .venv/bin/python
RECORDS ?= results/published
NEW ?= results/run-published

.PHONY: benchmark quick headline retained-memory published stages hops chatlearn in-flight weights detached-ppo pipeline zero peers cluster faults soak sweeps gpu test test-all test-optional unit lint publish clean
.DELETE_ON_ERROR:
# Without compiled modules, each of the hundreds of processes would compile torch and Ray again.
unexport PYTHONDONTWRITEBYTECODE

benchmark quick headline retained-memory stages hops chatlearn in-flight weights detached-ppo pipeline zero soak sweeps gpu: .venv/installed
	$(PY) benchmark.py $@

peers: .venv/installed-peers
	$(PY) benchmark.py peers

cluster: .venv/installed
	$(PY) cluster.py
	$(PY) cluster.py --nodes 2 --suite cluster-stages --runs 1

faults: .venv/installed
	rm -f results/evidence/faults.jsonl results/evidence/hostile.jsonl
	FAULT_RESULTS=results/evidence/faults.jsonl $(PY) -m pytest -n 2 tests/runs/test_faults.py tests/runs/test_cluster.py --all; \
		code=$$?; FAULT_RESULTS=results/evidence/hostile.jsonl $(PY) -m pytest tests/runs/test_hostile.py --all; \
		$(PY) -m evidence.faults results/evidence/faults.jsonl results/evidence/hostile.jsonl; exit $$code

published: .venv/installed .venv/installed-peers
	$(PY) benchmark.py published --runs 5 --output-dir $(NEW)

test: .venv/installed
	$(PY) -m pytest -n 2 --dist worksteal

test-all: .venv/installed-peers
	$(PY) -m pytest -n 2 --dist worksteal --all

test-optional: .venv/installed-peers
	$(PY) -m pytest -n 2 -rs -m optional

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
# NIXL depends on packages of every CUDA version. Without it, its configurations are skipped.
	-$(PY) -m pip install --quiet --disable-pip-version-check --no-compile --no-deps nixl==1.5.1 nixl-cu12==1.5.1
	touch $@

.venv/installed-peers: requirements-peers.txt .venv/installed
	$(PY) -m pip install --quiet --disable-pip-version-check --no-compile --no-deps -r requirements-peers.txt
	touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache results/run-* results/*.json
