# SPDX-License-Identifier: Apache-2.0
"""Read the bytes in the object stores of the cluster, those that were spilled, and who keeps objects.

A thread of the driver does it. In a normal profile, it reads the stores seldom, and the references of all processes
only while a store is filled. `raymeter memory` sets RAYMETER_MEMORY_SECONDS, and then it reads them in any case.
"""

import os
import threading
import time
from contextlib import suppress

from . import place, ray_internals

SECONDS = "RAYMETER_MEMORY_SECONDS"
SELDOM_SECONDS = 2.0
CONNECT_SECONDS = 0.1  # between two looks whether the driver is connected
MAX_SHARE = 0.05  # of the time, for reading: the next sample waits longer after a slow one
COPIED_BYTES = 16 * 2**20
FILLED_SHARE = 0.5  # of the store
MAX_REFERENCE_SECONDS = (
    0.25  # for reading all references: after a slower time, a normal profile does without
)
MAX_REFERENCES = 2_000  # of a sample, the largest
MIN_OBJECT_BYTES = 100 * 1024  # smaller objects are not in the store


class Sampler:
    """Read the stores again and again, from ray.init until `stop` before ray.shutdown."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.has_references = SECONDS in os.environ
        self.reference_seconds = 0.0  # of the last time that a normal profile asked for them
        self.first_spilled = None  # bytes; a cluster that was joined may have spilled before
        self.copy_rate = None  # measured when a store is filled
        self.seconds = float(os.environ.get(SECONDS, SELDOM_SECONDS))
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, name="raymeter-memory", daemon=True)
        self.thread.start()

    def run(self):
        """Sample until the end, or until a sample fails: the program goes on without it."""
        while not ray_internals.is_connected():
            if self.stopped.wait(CONNECT_SECONDS):
                return
        pause = 0.0
        while not self.stopped.wait(pause):
            begin = time.perf_counter()
            try:
                self.sample()
            except Exception:
                return
            taken = time.perf_counter() - begin
            pause = max(self.seconds, taken / MAX_SHARE)

    def sample(self):
        """Write one sample: the stores, and if needed who keeps objects.

        Most of its time, this thread waits for the raylet, and lets the program run. Raise an error if a node gives no
        answer, or if the event cannot be written.
        """
        begin = time.thread_time()
        try:
            self.write_sample()
        finally:
            self.recorder.own_seconds += time.thread_time() - begin

    def write_sample(self):
        """Ask the nodes, and write what they say."""
        asked = time.time()
        replies = ray_internals.node_statistics(self.has_references)
        stores = describe_stores(replies)
        is_needed = self.has_references or self.needs_references(stores)
        if is_needed and self.copy_rate is None:
            self.copy_rate = stores["copy_rate"] = measure_copy()
        self.recorder.write(stores)
        if self.has_references:
            self.write_references(asked, replies)
        elif is_needed:
            self.ask_for_references()

    def needs_references(self, stores):
        """Return whether it matters who keeps objects: much of the store is used, or objects went to disk."""
        if self.first_spilled is None:
            self.first_spilled = stores["spilled"]
        has_spilled = stores["spilled"] > self.first_spilled or stores["fallback"] > 0
        is_filled = stores["used"] > FILLED_SHARE * stores["capacity"]
        return self.reference_seconds < MAX_REFERENCE_SECONDS and (has_spilled or is_filled)

    def ask_for_references(self):
        """Write who keeps objects, and remember how long it took to know it."""
        asked = time.time()
        begin = time.perf_counter()
        self.write_references(asked, ray_internals.node_statistics(with_references=True))
        self.reference_seconds = time.perf_counter() - begin

    def write_references(self, asked, replies):
        for event in describe_references(asked, replies):
            self.recorder.write(event)

    def stop(self):
        """Write the last sample, before the driver leaves the cluster. No thread asks Ray after it."""
        if self.stopped.is_set():
            return
        self.stopped.set()
        self.thread.join()
        self.reference_seconds = 0.0  # however slow it was before: this is the last time
        with suppress(Exception):  # the raylet has ended before
            self.sample()


def measure_copy():
    """Return the bytes per second of a copy on this machine, into memory that was used before."""
    source = bytes(COPIED_BYTES)
    target = memoryview(bytearray(COPIED_BYTES))
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        target[:] = source
        seconds.append(time.perf_counter() - begin)
    return COPIED_BYTES / min(seconds)


def describe_stores(replies):
    """Return the event of the object stores of all nodes together, from the replies of their raylets.

    Ray's "avail" is the size of a store, also of what is used of it.
    """
    stores = [reply.store_stats for _, reply in replies]
    return {
        "event": "store",
        "time": time.time(),
        "used": sum(store.object_store_bytes_used for store in stores),
        "capacity": sum(store.object_store_bytes_avail for store in stores),
        "fallback": sum(store.object_store_bytes_fallback for store in stores),
        "objects": sum(store.num_local_objects for store in stores),
        "spilled": sum(store.spilled_bytes_total for store in stores),
        "restored": sum(store.restored_bytes_total for store in stores),
        "spill_seconds": sum(store.spill_time_total_s for store in stores),
        "restore_seconds": sum(store.restore_time_total_s for store in stores),
    }


def describe_references(asked, replies):
    """Return an event per large object of this job, and process that refers to it, at most MAX_REFERENCES, by size.

    Their time is the one at which the nodes were asked: what a task had read before, and was still in use, is kept.
    """
    job = ray_internals.worker.current_job_id.binary()
    events = []
    for node, reply in replies:
        for worker in reply.core_workers_stats:
            if worker.job_id != job:
                continue
            common = {"event": "reference", "time": asked, "node": node, "pid": worker.pid}
            large = [item for item in worker.object_refs if item.object_size >= MIN_OBJECT_BYTES]
            events += [common | describe_reference(item) for item in large]
    events.sort(key=lambda event: -event["bytes"])
    return events[:MAX_REFERENCES]


def describe_reference(reference):
    return {
        "object": reference.object_id.hex(),
        "bytes": reference.object_size,
        "kind": ray_internals.reference_kind(reference),
        "line": user_line(reference.call_site),
    }


def user_line(call_site):
    """Return "file:line" of the user's code in a place as Ray writes it; "" without one.

    Ray writes "(put object)  | file:function:line | file:function:line", the innermost first, if
    RAY_record_ref_creation_sites=1.
    """
    for part in call_site.split(" | "):
        words = part.strip().rsplit(":", 2)
        if len(words) == 3 and words[2].isdigit() and place.is_users_file(words[0]):
            return f"{words[0]}:{words[2]}"
    return ""
