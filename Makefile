# make benchmark   every rung at the full payload, then the chart     (about 10 minutes on two cores)
# make quick       the headline rungs, a quarter of it, few trips     (about two minutes)
# make stages      where the time goes: the main rungs traced         (about 3 minutes)
# make hops        the microbenchmarks of small messages              (about 6 minutes)
# make test        the tests                                          (about 10 minutes)
# make lint        ruff and mypy
# make publish     redraw img/ and the README's tables from results/published

PYTHON ?= python3
PY := .venv/bin/python
STORE := $(PY) simulate_chat_learn_data_flow.py
GRAPH := $(PY) ray_cg_simulate_chat_learn_data_flow.py
RDT := $(PY) ray_rdt_simulate_chat_learn_data_flow.py
TORCH := $(PY) torch_simulate_chat_learn_data_flow.py
RUN := results/run-$(shell date -u +%Y%m%dT%H%M%SZ)
RECORDS ?= results/published/*.json results/published/*/*.json
# Exit code 2 is a rung that this machine has to waive (no GPU, say); its record says why.
WAIVABLE := || test $$? -eq 2

.PHONY: benchmark quick stages hops test lint publish clean
.DELETE_ON_ERROR:

benchmark: .venv/installed
	$(STORE) --transport driver-queue --iterations 100 --output $(RUN)/store-driver-queue.json
	$(GRAPH) --transport zero-copy --iterations 100 --output $(RUN)/graph-zero-copy.json
	$(GRAPH) --transport mapped --iterations 100 --output $(RUN)/graph-mapped.json
	$(TORCH) --transport multiprocessing --iterations 100 --output $(RUN)/torch-multiprocessing.json
	$(GRAPH) --transport mapped --iterations 100 --episode 10 --output $(RUN)/graph-mapped-episode.json
	$(TORCH) --transport multiprocessing --iterations 100 --episode 10 --output $(RUN)/torch-multiprocessing-episode.json
	$(GRAPH) --transport mapped --copy-out --iterations 100 --output $(RUN)/graph-mapped-copy-out.json
	$(TORCH) --transport memcpy --iterations 100 --output $(RUN)/torch-memcpy.json
	$(TORCH) --transport multiprocessing --copy-out --iterations 50 --output $(RUN)/torch-multiprocessing-copy-out.json
	$(TORCH) --transport gloo --iterations 30 --output $(RUN)/torch-gloo.json
	$(TORCH) --transport nccl --output $(RUN)/torch-nccl.json $(WAIVABLE)
	$(TORCH) --transport nccl-one-gpu --output $(RUN)/torch-nccl-one-gpu.json $(WAIVABLE)
	$(GRAPH) --transport pickle --iterations 20 --output $(RUN)/graph-pickle.json
	$(GRAPH) --transport bytes --iterations 20 --output $(RUN)/graph-bytes.json
	$(GRAPH) --transport shm --iterations 30 --output $(RUN)/graph-shm.json
	$(GRAPH) --transport shm --huge-pages --iterations 30 --output $(RUN)/graph-shm-huge-pages.json
	$(GRAPH) --transport shm --reuse-buffers --iterations 30 --output $(RUN)/graph-shm-reuse-buffers.json
	$(GRAPH) --transport zero-copy --copy-out --iterations 30 --output $(RUN)/graph-zero-copy-copy-out.json
	$(GRAPH) --transport nccl --output $(RUN)/graph-nccl.json $(WAIVABLE)
	$(RDT) --transport mapped --iterations 50 --output $(RUN)/rdt-mapped.json
	$(RDT) --transport mapped --copy-out --iterations 30 --output $(RUN)/rdt-mapped-copy-out.json
	$(RDT) --transport gloo --iterations 20 --output $(RUN)/rdt-gloo.json
	$(RDT) --transport gloo --huge-pages --iterations 20 --output $(RUN)/rdt-gloo-huge-pages.json
	$(RDT) --transport nixl --iterations 20 --output $(RUN)/rdt-nixl.json $(WAIVABLE)
	$(RDT) --transport nixl --huge-pages --iterations 20 --output $(RUN)/rdt-nixl-huge-pages.json $(WAIVABLE)
	$(RDT) --transport cuda-ipc --output $(RUN)/rdt-cuda-ipc.json $(WAIVABLE)
	$(RDT) --transport nccl --output $(RUN)/rdt-nccl.json $(WAIVABLE)
	$(STORE) --transport payload-queue --iterations 10 --output $(RUN)/store-payload-queue.json
	$(STORE) --transport ref-queue --iterations 20 --output $(RUN)/store-ref-queue.json
	$(STORE) --transport refs --iterations 20 --output $(RUN)/store-refs.json
	$(STORE) --transport refs --zero-copy --iterations 30 --output $(RUN)/store-refs-zero-copy.json
	$(STORE) --transport bytes --iterations 20 --output $(RUN)/store-bytes.json
	$(PY) plot_results.py $(RUN)/*.json --output-dir $(RUN)

# Each leaves a Chrome trace too: open it in https://ui.perfetto.dev.
stages: .venv/installed
	mkdir -p $(RUN)/stages
	set -e; trace() { name=$$1; shift; "$$@" --iterations 10 --trace $(RUN)/stages/$$name.trace \
	    --output $(RUN)/stages/$$name.json || test $$? -eq 2; }; \
	trace store-driver-queue $(STORE) --transport driver-queue; \
	trace store-ref-queue $(STORE) --transport ref-queue; \
	trace store-refs-zero-copy $(STORE) --transport refs --zero-copy; \
	trace rdt-gloo $(RDT) --transport gloo; \
	trace rdt-nixl $(RDT) --transport nixl; \
	trace rdt-mapped $(RDT) --transport mapped; \
	trace graph-pickle $(GRAPH) --transport pickle; \
	trace graph-shm $(GRAPH) --transport shm; \
	trace graph-shm-reuse-buffers $(GRAPH) --transport shm --reuse-buffers; \
	trace graph-zero-copy $(GRAPH) --transport zero-copy; \
	trace graph-mapped-copy-out $(GRAPH) --transport mapped --copy-out; \
	trace graph-mapped $(GRAPH) --transport mapped; \
	trace torch-gloo $(TORCH) --transport gloo; \
	trace torch-multiprocessing $(TORCH) --transport multiprocessing; \
	trace torch-memcpy $(TORCH) --transport memcpy
	$(PY) plot_results.py $(RUN)/stages/*.json --output-dir $(RUN)/stages

# Calls follow each other as in the article, so the bytes are checked after every hundredth.
hops: HOP := --iterations 1000 --episode 100
hops: .venv/installed
	set -e; for flow in round-trip chain scatter-gather; do \
	    $(STORE) --transport refs --flow $$flow $(HOP) --output $(RUN)/hops/$$flow-store-refs.json; \
	    $(STORE) --transport bytes --flow $$flow $(HOP) --output $(RUN)/hops/$$flow-store-bytes.json; \
	    $(GRAPH) --transport pickle --flow $$flow $(HOP) --output $(RUN)/hops/$$flow-graph-pickle.json; \
	    $(GRAPH) --transport bytes --flow $$flow $(HOP) --output $(RUN)/hops/$$flow-graph-bytes.json; \
	    $(GRAPH) --transport mapped --flow $$flow $(HOP) --output $(RUN)/hops/$$flow-graph-mapped.json; \
	    $(RDT) --transport gloo --flow $$flow $(HOP) --output $(RUN)/hops/$$flow-rdt-gloo.json; \
	    $(RDT) --transport mapped --flow $$flow $(HOP) --output $(RUN)/hops/$$flow-rdt-mapped.json; \
	    $(TORCH) --transport gloo --flow $$flow $(HOP) --output $(RUN)/hops/$$flow-torch-gloo.json; \
	    $(TORCH) --transport multiprocessing --flow $$flow $(HOP) --output $(RUN)/hops/$$flow-torch-mp.json; \
	done; for bytes in 1 1048576; do \
	    $(STORE) --transport bytes --flow round-trip --payload-bytes $$bytes $(HOP) --output $(RUN)/hops/$$bytes-store.json; \
	    $(GRAPH) --transport bytes --flow round-trip --payload-bytes $$bytes $(HOP) --output $(RUN)/hops/$$bytes-graph.json; \
	done; for runtime in "$(STORE)" "$(GRAPH)"; do \
	    $$runtime --transport bytes --flow round-trip --placement spread $(HOP) \
	        --output $(RUN)/hops/spread-$$(basename $${runtime##* } _simulate_chat_learn_data_flow.py).json; \
	done
	$(PY) plot_results.py $(RUN)/hops/*.json --output-dir $(RUN)/hops

quick: QUICK := --batch-size 256 --iterations 3 --warmup 1
quick: .venv/installed
	$(STORE) --transport driver-queue $(QUICK) --output $(RUN)/driver-queue.json
	$(STORE) --transport ref-queue $(QUICK) --output $(RUN)/ref-queue.json
	$(GRAPH) --transport shm $(QUICK) --output $(RUN)/shm.json
	$(GRAPH) --transport mapped $(QUICK) --output $(RUN)/mapped.json
	$(RDT) --transport gloo $(QUICK) --output $(RUN)/gloo.json
	$(TORCH) --transport memcpy $(QUICK) --output $(RUN)/memcpy.json
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
	# NIXL asks for packages of every CUDA; where it cannot be had its rows are waived.
	-$(PY) -m pip install --quiet --disable-pip-version-check --no-deps nixl==1.5.1 nixl-cu12==1.5.1
	touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache results/run-* results/*.json
