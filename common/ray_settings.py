# SPDX-License-Identifier: Apache-2.0
"""The variables of Ray's processes, on clusters that the scripts or `python3 -m dataflow nodes` start.

The suite has its own in dataflow/workers/variables.toml. Ray reads them when it is imported, and its processes inherit
them. tests/workers/test_ray_internals.py checks that the Ray of SEEN_VERSION knows all of them.
"""

import os

SEEN_VERSION = "2.60.0"
# Readers get copies, and not views of the object store.
COPIES = {"RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "0"}
# Ray would print advice of its raylet, for example if an actor dies, which log_to_driver=False does not stop. It skips
# lines that match, as it skips repeated ones: every line has a beginning (docs.ray.io, "Log deduplication").
QUIET = {"RAY_DEDUP_LOGS": "1", "RAY_DEDUP_LOGS_SKIP_REGEX": "^"}
TOKEN_MODE = {"RAY_AUTH_MODE": "token"}
# Of every cluster that is started here: only processes with the token of this process can join.
OWN_CLUSTER = {
    **TOKEN_MODE,
    "RAY_AUTH_TOKEN": os.urandom(32).hex(),  # otherwise, Ray writes a token into the home folder
    "RAY_enable_worker_prestart": "0",
    "RAY_worker_niceness": "0",  # Ray's default is 15
}
# Of a cluster on this machine alone.
PRIVATE_CLUSTER = {
    **OWN_CLUSTER,
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # listen on 127.0.0.1 only
    "RAY_USAGE_STATS_ENABLED": "0",
    "no_proxy": "127.0.0.1,localhost",  # gRPC would send Ray's messages to a proxy
}
# Of a cluster of several nodes.
NODES_CLUSTER = {**OWN_CLUSTER, "RAY_enable_metrics_collection": "0"}
# Of this process, for the processes of a cluster that was started with other ones: how their names begin.
SENT_VARIABLES = ("RAY_CGRAPH_", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS")
