"""The environment of a worker, set before it begins: what libraries read when they are imported."""

import os
import secrets
from pathlib import Path

from common.plan.plan import Plan

TOKEN = Path.home() / ".ray" / "auth_token"  # where Ray keeps the one of this user's clusters


def variables(plan: Plan) -> dict[str, str]:
    """What the worker's environment has beside the user's own."""
    options = plan.options
    found = {"THP_MEM_ALLOC_ENABLE": "1"} if options.huge_pages else {}
    if options.threads > 1:  # else the threads of who has copied spin on, on the cores of who copies next
        found["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "passive")
    if plan.row.runtime == "torch":
        return found | {"GLOO_SOCKET_IFNAME": "lo"}
    # Later than the supervisor's own deadline: when it expires, Ray's ways of ending a trip name nobody.
    seconds = str(max(1, round(options.timeout)) + 30)
    found |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_DEDUP_LOGS": "0",
        "NIXL_LOG_LEVEL": "WARN",
        "RAY_CGRAPH_get_timeout": seconds,
        "RAY_CGRAPH_submit_timeout": seconds,
        # A read that is tried again after this long hangs on an NCCL edge whose sender was slow: Ray has
        # consumed the tensors by then. So no read is tried again.
        "RAY_CGRAPH_read_iteration_timeout_s": seconds,
        "RAY_CGRAPH_teardown_timeout": "5",
        "RAY_rdt_fetch_fail_timeout_milliseconds": seconds + "000",
        "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": str(int(options.zero_copy)),
    }
    if options.address:
        # `ray start` asks for tokens by itself, and a driver that was not told to send one is not let in.
        if "RAY_AUTH_MODE" not in os.environ and ("RAY_AUTH_TOKEN" in os.environ or TOKEN.exists()):
            found["RAY_AUTH_MODE"] = "token"
    else:
        found |= {
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # every listener on 127.0.0.1
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),  # of this run alone, so none is written to disk
            "RAY_worker_niceness": "0",  # Ray's own choice is 15
            "RAY_enable_worker_prestart": "0",
            "GLOO_SOCKET_IFNAME": "lo",
            "UCX_NET_DEVICES": "lo",  # NIXL's UCX listens on the machine's outside address otherwise
        }
    return found
