"""Make the environment variables of a driver process, which libraries read when they are imported."""

import os
import secrets
from pathlib import Path

from dataflow.plan.plan import Plan

# glibc returns large blocks to the kernel when they are freed. With these settings, it takes only blocks of 4 GB and
# more from the kernel separately (MMAP_THRESHOLD_), keeps the top of the heap (TRIM_THRESHOLD_, TOP_PAD_), and gives
# threads no heaps of their own, which end at 64 MiB (ARENA_MAX). https://man7.org/linux/man-pages/man3/mallopt.3.html
RETAIN_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000", "MALLOC_TOP_PAD_": "67108864",
    "MALLOC_ARENA_MAX": "1",
}  # fmt: skip
# Where Ray stores the token of this user's clusters. A user without a home has none.
TOKEN = Path(os.path.expanduser("~/.ray/auth_token"))


def driver_environment(plan: Plan) -> dict[str, str]:
    """Return the variables that a driver process and its actors have in addition to the user's."""
    options = plan.options
    # gRPC, which Ray and Arrow Flight use, would send messages to this machine and to the cluster to http_proxy.
    hosts = ["127.0.0.1", "localhost", (options.address or "").rpartition(":")[0]]
    direct = ",".join(filter(None, [os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), *hosts]))
    variables = {"no_proxy": direct, "NO_PROXY": direct} | (RETAIN_MEMORY if options.retain_memory else {})
    if options.huge_pages:
        variables["THP_MEM_ALLOC_ENABLE"] = "1"
    if options.threads > 1:  # threads that have copied would busy-wait, on the cores of the next process that copies
        variables["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "passive")
    if not plan.transport.runtime.uses_ray and not options.address:
        return variables | {"GLOO_SOCKET_IFNAME": "lo"}
    # Longer than the monitor's own timeout: Ray's messages after a timeout name no actor.
    seconds = str(max(1, round(options.timeout)) + 30)
    variables |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_metrics_collection": "0",
        "NIXL_LOG_LEVEL": "WARN",
        "RAY_CGRAPH_get_timeout": seconds,
        "RAY_CGRAPH_submit_timeout": seconds,
        # Ray repeats a read after this time. On an NCCL edge with a slow sender the second read hangs, because the
        # first one has consumed the tensors. So no read is repeated.
        "RAY_CGRAPH_read_iteration_timeout_s": seconds,
        "RAY_CGRAPH_teardown_timeout": "5",
        "RAY_rdt_fetch_fail_timeout_milliseconds": seconds + "000",
        "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": str(int(options.zero_copy)),
    }
    if not options.address:
        return variables | {
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # every listener on 127.0.0.1
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),  # for this run only, so that no token is written to disk
            "RAY_worker_niceness": "0",  # Ray's default is 15
            "RAY_enable_worker_prestart": "0",
            "RAY_preallocate_plasma_memory": str(int(options.preallocate_store)),
            "GLOO_SOCKET_IFNAME": "lo",
            "UCX_NET_DEVICES": "lo",  # otherwise UCX (NIXL) listens on the machine's external address
            "UCX_PROTO_INFO": "y",  # UCX logs which transport carries its reads
            "UCX_LOG_FILE": f"{plan.run_folder}/ucx.%p.log",
        }
    variables["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # torch warns of addresses that have no host name
    # `ray start` requires a token by default, and rejects a driver that was not configured to send one.
    if "RAY_AUTH_MODE" not in os.environ and ("RAY_AUTH_TOKEN" in os.environ or TOKEN.exists()):
        variables["RAY_AUTH_MODE"] = "token"
    return variables
