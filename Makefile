# SPDX-License-Identifier: Apache-2.0
# make demo                 the two scripts with 20 iterations, their chart and the ratio of their times (two minutes)
# make agreement            five runs of each script's transports, and of the suite's, and the ratios of their times (an hour)
# make run SUITE=stages     measure a suite; FLAGS="--runs 5" adds flags (python3 -m dataflow run --help lists the suites)
# make quick                the suite quick: seven configurations with a quarter of the payload (three minutes)
# make campaign             the configurations that carry an answer, three runs each (an hour); compare with others. On a
#                           new boot first: python3 -m dataflow predict --campaign, and commit the file
# make huge-pages           six configurations while the kernel gives huge pages to private memory, to /dev/shm, to both, and
#                           to neither; needs root (half an hour; docs/page-faults.md)
# make published            five runs of all one-node tables (several hours), into results/run-published
# make gpu                  the suite gpu (a quarter of an hour at most on one card); PY=python3 uses the machine's own packages
# make test                 lint, and all tests except slow and long ones; ARGS adds flags of pytest
# make test-raymeter        the tests of raymeter, which make test runs, too
# make test-slow            the slow tests, and real programs under raymeter
# make test-all             all tests, also the slow and the long ones
# make unit                 only the tests that start no workers
# make lint                 ruff and mypy
# make peers                install ZeroMQ, Arrow Flight, TransferQueue and tensordict, which some tests and suites need
# make faults               faults and hostile uses, and what runs say, keep and leave behind; ARGS="-k NIXL" renews some rows
# make publish              regenerate img/ and the tables of README.md and docs/ from the records in results/
# make profile-examples     profile programs of others with raymeter, and try its advice (half an hour; docs/profile.md)
# make cases                programs with known causes before and after their fix and under raymeter (40 minutes); FLAGS="--only NAMES"
# make put-gigabytes        Ray's metric of puts, with several versions of Ray (ten minutes; docs/page-faults.md)
# make profile-cost         what recording costs in CPU time (20 minutes on a machine that does nothing else)
# make profile-versions     profile a known program with three versions of Ray
# make clean                remove the virtual environment, and the records and profiles of runs

PYTHON ?= python3
PY := .venv/bin/python
SUITE ?= quick
FLAGS ?=
ARGS ?=
RECORDS ?= results/published
NEW ?= results/run-published

.PHONY: demo agreement run quick campaign huge-pages published gpu test test-raymeter test-slow test-all unit lint peers faults publish profile-examples profile-cost profile-versions put-gigabytes cases clean
.DELETE_ON_ERROR:
# Without compiled modules, each of the hundreds of processes would compile torch and Ray again.
unexport PYTHONDONTWRITEBYTECODE

demo: .venv/installed
	rm -rf results/run-demo
	$(PY) simulate_chat_learn_data_flow.py --iterations 20 --output results/run-demo/queue.json
	$(PY) ray_cg_simulate_chat_learn_data_flow.py --iterations 20 --output results/run-demo/graph.json
	$(PY) plot_results.py results/run-demo

AGREEMENT ?= results/run-agreement
agreement: .venv/installed
	for run in 1 2 3 4 5; do \
		for name in "store driver-queue" "store ref-queue" "store refs" "graph shm" "graph pickle"; do \
			script=simulate_chat_learn_data_flow.py; \
			case "$$name" in graph*) script=ray_cg_simulate_chat_learn_data_flow.py;; esac; \
			$(PY) $$script --transport $${name#* } --iterations 20 --output "$(AGREEMENT)/scripts/$$name $$run.json" && \
			$(PY) -m dataflow run "$$name" --iterations 20 --warmup 10 --output "$(AGREEMENT)/suite/$$name $$run.json" \
				|| exit 1; \
		done; \
	done
	$(PY) -m dataflow compare $(AGREEMENT)/suite $(AGREEMENT)/scripts --mixed

# What `run` prints after an interrupt, with the name of its folder in place of OUTPUT.
run quick gpu: export DATA_FLOW_MAKE = make $@ SUITE=$(SUITE) FLAGS="$(strip $(FLAGS) --continue --output OUTPUT)"
run quick: .venv/installed
	$(PY) -m dataflow run --suite $(SUITE) $(FLAGS)

# Its folder is named after the day and a part of the hash of the boot, which its records name too.
campaign: .venv/installed-peers
	$(PY) -m dataflow run --suite campaign --runs 3 \
		--output results/campaigns/$$(date -u +%Y-%m-%dT%H%M)-$$(sha256sum < /proc/sys/kernel/random/boot_id | head -c 4)

# Private memory and /dev/shm, as huge_pages.sh takes them. The settings take turns, in the second round backwards, so that
# a machine that gets slower favours none. A configuration whose run fails (exit code 1) does not end the others.
HUGE_PAGES ?= results/run-huge-pages
FORWARDS := madvise-never always-never madvise-always always-always
BACKWARDS := always-always madvise-always always-never madvise-never
huge-pages: .venv/installed
	for runs in 1 2 3; do \
		settings="$(FORWARDS)"; \
		[ $$runs != 2 ] || settings="$(BACKWARDS)"; \
		for setting in $$settings; do \
			mkdir -p $(HUGE_PAGES)/$$setting && \
			sh dataflow/machine/huge_pages.sh $${setting%-*} $${setting#*-} \
				$(PY) -m dataflow run --suite huge-pages --runs $$runs --continue --output $(HUGE_PAGES)/$$setting \
				|| [ $$? = 1 ] || exit 1; \
		done; \
	done
	$(PY) -m dataflow report $(HUGE_PAGES) --mixed

published: .venv/installed-peers
	$(PY) -m dataflow run --suite published --runs 5 --output $(NEW)

# With PY=python3, the packages of the machine, for one that reaches no package index.
gpu: $(if $(filter .venv/%,$(PY)),.venv/installed)
	$(PY) -m dataflow run --suite gpu $(FLAGS)

test: lint test-raymeter
# Three workers for two cores: runs wait for processes that start.
	$(PY) -m pytest -n 3 --dist worksteal $(ARGS)

test-raymeter: .venv/installed-dev
	cd raymeter && ../$(PY) -m pytest -n 2 -m "not runs and not optional"

test-slow: .venv/installed-dev
	$(PY) -m pytest -n 2 --dist worksteal --slow -m slow
	cd raymeter && ../$(PY) -m pytest -m "runs and not optional"

test-all:
	$(MAKE) test ARGS=--all
	cd raymeter && ../$(PY) -m pytest -m "runs and not optional"

unit: .venv/installed-dev
	$(PY) -m pytest -n 2 --dist worksteal -m "not runs"

lint: .venv/installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
# With the cache of the run before, which has read torch and NumPy.
	cd raymeter/src && ../../$(PY) -m mypy --config-file ../pyproject.toml --cache-dir ../../.mypy_cache

peers: .venv/installed-peers

faults: .venv/installed-dev
	FAULT_RESULTS=results/evidence $(PY) -m pytest -n 2 tests/runs/test_faults.py tests/runs/test_cluster.py --all $(ARGS); \
		code=$$?; PYTHONPATH=. $(PY) tests/runs/faults.py; exit $$code

publish: .venv/installed
	$(PY) -m dataflow.analysis.stored_costs
	$(PY) -m dataflow.cluster.check
	$(PY) -m dataflow report $(RECORDS) --publish
	$(PY) -m examples.profiled.publish
	$(PY) plot_results.py results/campaigns

profile-examples: .venv-profiled/installed
	.venv-profiled/bin/python -m examples.profiled.measure

profile-cost: .venv/installed
	$(PY) raymeter/tests/measure_cost.py --output results/evidence/raymeter/cost.json

RAYS := 2.44.1 2.52.1 2.60.0
profile-versions: .venv/installed
	for version in $(RAYS); do $(PY) -m pip install --quiet --target .venv-profiled/ray-$$version ray==$$version \
		aiosignal frozenlist || exit 1; done
	$(PY) raymeter/tests/versions.py --output results/evidence/raymeter/versions.json $(RAYS:%=.venv-profiled/ray-%)

.venv-cases/installed: raymeter/tests/requirements.txt
	$(PYTHON) -m venv .venv-cases
	.venv-cases/bin/python -m pip install --quiet --disable-pip-version-check -r raymeter/tests/requirements.txt
	touch $@

cases: .venv-cases/installed
	.venv-cases/bin/python raymeter/tests/scoreboard.py --output results/evidence/raymeter/scoreboard.json $(FLAGS)

PUT_RAYS := 2.44.1 2.53.0 2.54.0 2.56.0 2.58.0 2.60.0
PUTS := results/evidence/put-gigabytes.jsonl
# Listen on the loopback interface only.
put-gigabytes: export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER = 0
put-gigabytes: .venv/installed
	rm -f $(PUTS)
	for version in $(PUT_RAYS); do $(PY) -m pip install --quiet --target .venv-profiled/ray-$$version ray==$$version \
		aiosignal frozenlist || exit 1; done
	for run in 1 2 3 4 5; do for version in $(PUT_RAYS); do \
		PYTHONPATH=.venv-profiled/ray-$$version $(PY) -m examples.put_records $(PUTS) || exit 1; done; \
		RAY_preallocate_plasma_memory=1 $(PY) -m examples.put_records $(PUTS) || exit 1; done

.venv-profiled/installed: examples/profiled/requirements.txt
	$(PYTHON) -m venv .venv-profiled
	.venv-profiled/bin/python -m pip install --quiet --disable-pip-version-check -r examples/profiled/requirements.txt
	.venv-profiled/bin/python -m pip install --quiet --disable-pip-version-check --no-deps verl==0.9.1 \
		TransferQueue==0.1.11
	touch $@

.venv/installed: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"error: Python 3.11 or newer is needed: $(PYTHON) is " + sys.version.split()[0] + ": give make PYTHON=python3.11")'
	@echo "installing packages into .venv, which takes a minute or more"
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.txt
# NIXL depends on packages of every CUDA version; PyPI's torch is built for CUDA 13. Without NIXL, its configurations
# and tests are skipped.
	$(PY) -m pip install --quiet --disable-pip-version-check --no-compile --no-deps nixl==1.5.1 nixl-cu13==1.5.1 || \
		echo "NIXL was not installed (see above): its configurations and tests are skipped"
	touch $@

.venv/installed-dev: requirements-dev.txt .venv/installed
	$(PY) -m pip install --quiet --disable-pip-version-check --no-compile -r requirements-dev.txt
	touch $@

.venv/installed-peers: requirements-peers.txt .venv/installed
	$(PY) -m pip install --quiet --disable-pip-version-check --no-compile --no-deps -r requirements-peers.txt
	touch $@

clean:
	rm -rf .venv .venv-profiled .venv-cases .pytest_cache .ruff_cache .mypy_cache .hypothesis results/run-* results/*.json raymeter-profiles
