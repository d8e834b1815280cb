# SPDX-License-Identifier: Apache-2.0
"""Hold a message while later ones arrive: it is overwritten over just those transports of which the catalogue says so.

Views are left out: a reader that holds one stops its sender.
"""

from importlib.util import find_spec

import pytest
from conftest import require_nixl

from dataflow.catalogue.catalogue import (
    TRANSPORTS,
    flags_of_name,
    later_messages_overwrite,
    readers_get_views,
)

HELD = 3  # number of the message that is held
OVERWRITTEN = f"a later message has overwritten message {HELD}"
# A message of more than 100 KiB, which Ray does not put into its calls.
FLOW = "a -> b: x int64 200kB, y 3 x float32 8kB"
FLAT = "a -> b: 200kB"  # for a system that takes no dict of tensors
SHORT = ("--iterations", "5", "--warmup", "0", "--inject", f"b:{HELD}:hold")
MORE = (
    "torch gloo --keep",
    "torch broadcast --keep",
    "torch mapped --copy-out",
    "torch mapped --copy-in --copy-out",
    "torch mapped --copy-in --copy-out --keep",
    "torch multiprocessing --copy-out",
    "torch multiprocessing --copy-out --keep",
    "store refs --zero-copy --copy-out",
    "store refs --zero-copy --copy-out --keep",
    "store numpy --copy-out",
    "graph zero-copy --copy-out",
    "graph zero-copy --copy-out --keep",
    "graph mapped --copy-out",
    "graph mapped --copy-out --keep",
    "graph nixl-read --keep",
    "rdt nixl-pull --reuse-buffers",
    "peers iceoryx2 --copy-out",
    "peers iceoryx2 --copy-out --keep",
)
QUICK = ("torch gloo", "torch gloo --keep", "torch mapped --copy-out")
SLOW = (
    "store refs",
    "graph shm",
    "graph zero-copy --copy-out",
    "graph zero-copy --copy-out --keep",
    "graph nixl-read",
    "rdt nixl",
    "rdt nixl-pull --reuse-buffers",
    "torch broadcast --keep",
)


def transport_of(name):
    return TRANSPORTS.get(" ".join(name.split()[:2]))


def is_held(transport):
    """Return whether this machine may have what the transport needs, and readers can hold its messages."""
    needs = transport.requirements
    is_on_cpu = not needs.gpus and not needs.gpu_per_actor
    return is_on_cpu and not transport.gives_views and transport.name != "collectives"


def list_names():
    """Return all transports that are not of views, and MORE, without those of a study that is not installed."""
    names = [name for name, transport in TRANSPORTS.items() if is_held(transport)]
    return [*names, *(name for name in MORE if transport_of(name))]


def mark(name):
    marks = []
    if name not in QUICK:
        marks.append(pytest.mark.slow if name in SLOW else pytest.mark.long)
    if not transport_of(name).module.startswith("transports."):
        marks.append(pytest.mark.optional)
    return pytest.param(name, marks=marks)


def require_modules(transport):
    if "nixl" in transport.requirements.modules:
        require_nixl()
    for module in transport.requirements.modules:
        if not find_spec(module):
            pytest.skip(f"{module} is not installed: {transport.requirements.install}")


@pytest.mark.parametrize("name", [mark(name) for name in list_names()])
def test_a_message_that_a_reader_holds_is_overwritten_if_the_catalogue_says_so(
    run_script, join_cluster, name
):
    transport = transport_of(name)
    require_modules(transport)
    runtime, transport_name, *flags = name.split()
    flow = FLAT if transport_name == "transfer-queue" else FLOW
    joined = () if transport.requirements.single_host else join_cluster(runtime)
    words = ("--flow", flow, *flags, *SHORT, *joined)
    finished = run_script(runtime, "--transport", transport_name, *words)
    given = flags_of_name(name)
    assert not readers_get_views(transport, given)
    run = finished.run
    if later_messages_overwrite(transport, given):
        assert (finished.code, run.status) == (1, "failed")
        assert OVERWRITTEN in run.reason
    else:
        assert (finished.code, run.status, run.reason) == (0, "ok", None)
        assert run.wrong_bytes == 0
