"""Where a flag cannot be used: each takes the row and all that was asked, and says why, or None (or nothing)."""

import os
from pathlib import Path
from typing import Any

from common.record.rows import Row

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
RAYS = "--zero-copy, --address, --placement and --object-store-bytes are Ray's: leave them out"


def only_tensors_of_the_store(row: Row, _: Any) -> str | None:
    if row.runtime == "torch":
        return RAYS
    if row.runtime != "store":
        return "--zero-copy is the object store's: in the compiled graph give --transport zero-copy"
    if row.transport in ("bytes", "numpy"):
        return f"--zero-copy maps tensors, not {row.transport}: leave it out, or give --transport refs"
    return None


def only_views(row: Row, options: Any) -> str | None:
    if not (row.views or options.zero_copy):
        return f"--copy-out is for mapped transports: {row.transport} hands out copies already"
    return None


def only_shm(row: Row, _: Any) -> str | None:
    if (row.runtime, row.transport) != ("graph", "shm"):
        return "--reuse-buffers is for the compiled graph's shm: leave it out"
    return None


def only_ray(row: Row, _: Any) -> str | None:
    return RAYS if row.runtime == "torch" else None


def only_several_machines(row: Row, options: Any) -> str | None:
    if row.needs.one_machine:
        return f"{row.transport} is one machine's memory: leave --address out"
    if options.object_store_bytes:
        return "--object-store-bytes: the store of --address has its size already: leave it out"
    return only_ray(row, options)


def no_such_episode(row: Row, options: Any) -> str | None:
    if options.episode < options.in_flight:
        return f"--episode {options.episode}: fewer than the {options.in_flight} of --in-flight"
    if row.is_chatlearns and 1 < options.in_flight < options.episode:
        return f"--in-flight {options.in_flight}: ChatLearn hands over a whole episode at a time: give --in-flight " + (
            f"{options.episode} with --episode {options.episode}, or leave it out"
        )
    return None


def only_ref_queue(name: str) -> Any:
    def refuse(row: Row, _: Any) -> str | None:
        if not row.is_chatlearns:
            return f"--{name.replace('_', '-')} is ChatLearn's: it is for the object store's ref-queue alone"
        return None

    return refuse


def only_whole_episodes(row: Row, options: Any) -> str | None:
    if only_ref_queue("sink")(row, options):
        return None  # the trainer reads message by message
    if options.trips_in_a_row != options.in_flight:
        return f"--sink trainer: an episode is handed over as a whole: give --in-flight {options.trips_in_a_row}"
    step = options.train_micro_batch * options.data_parallel
    if options.train_global_batch % step:
        return f"--train-global-batch {options.train_global_batch} is not a whole number of --train-micro-batch " + (
            f"{options.train_micro_batch} for {options.data_parallel} ranks: give a multiple of {step}"
        )
    return None


def only_trainers(_: Row, options: Any) -> str | None:
    if options.sink != "trainer":
        return "--train-..., --data-parallel, --trainers, --epochs, --relay-..., --loader: give --sink trainer too"
    return None


def only_stream_dataset(name: str) -> Any:
    def refuse(row: Row, options: Any) -> str | None:
        return only_trainers(row, options) or only_ref_queue(name)(row, options)

    return refuse


def deeper_than_it_holds(row: Row, options: Any) -> str | None:
    if options.in_flight > (row.depth or options.in_flight):
        return f"--in-flight {options.in_flight}: {row.transport} holds {row.depth} trip under way: give {row.depth}"
    return None


def one_clock(_: Row, options: Any) -> str | None:
    if options.address or options.placement == "spread":
        return "--trace needs one clock: leave --address and --placement spread out"
    return "--trace is the file of --output: give another name" * (options.trace == options.output)


def switched_off(*_: Any) -> str | None:
    try:
        off = "[never]" in HUGE_PAGES.read_text()
    except OSError:
        off = True
    return f"--huge-pages: this machine has them switched off: write madvise into {HUGE_PAGES}" if off else None


def more_than_cores(_: Row, options: Any) -> str | None:
    cores = len(os.sched_getaffinity(0))
    if options.threads > cores:
        return f"--threads {options.threads}: there are {cores} cores: give {cores} or fewer"
    return None
