# SPDX-License-Identifier: Apache-2.0
"""Make the environment variables of a driver process, which libraries read when they are imported."""

import os
import secrets
from pathlib import Path

from dataflow.plan.environment import VARIABLES, parse_environment
from dataflow.plan.plan import Plan

RETAIN_MEMORY = VARIABLES["retain_memory"]
# Where Ray stores the token of this user's clusters. A user without a home has none.
TOKEN = Path(os.path.expanduser("~/.ray/auth_token"))


def driver_environment(plan: Plan) -> dict[str, str]:
    """Return the variables that a driver process and its actors have in addition to the user's."""
    options = plan.options
    address = options.address or ""
    uses_ray = plan.transport.runtime.uses_ray or address
    has_own_settings = uses_ray and not options.ray_defaults
    used = {
        "retain_memory": options.retain_memory,
        "huge_pages": options.huge_pages,
        "one_machine": not address,
        "ray": uses_ray,
        "fewer_threads": has_own_settings,
        "fewer_processes": has_own_settings and not address,
        "private_cluster": uses_ray and not address,
        "existing_cluster": address,
    }
    values = {
        "seconds": max(1, round(options.timeout)) + 30,
        "token": secrets.token_hex(32),
        "folder": plan.run_folder,
        "zero_copy": int(options.zero_copy),
        "preallocate_store": int(options.preallocate_store),
    }
    # Those of the user cannot be any of the suite: plan/environment.py rejects them.
    variables = parse_environment(options.env)
    for name, is_used in used.items():
        if is_used:
            section = VARIABLES[name]
            variables |= {key: text.format_map(values) for key, text in section.items()}
    variables |= dict.fromkeys(("no_proxy", "NO_PROXY"), direct_hosts(address))
    if options.threads > 1 and "OMP_WAIT_POLICY" not in variables:
        # Threads that have copied would busy-wait, on the cores of the next process that copies.
        variables["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "passive")
    if address and needs_token_mode():
        variables["RAY_AUTH_MODE"] = "token"
    return variables


def direct_hosts(address: str) -> str:
    """Return the hosts to which no message goes through a proxy: those of the user, this one, and the cluster.

    gRPC, which Ray and Arrow Flight use, would send messages to them to http_proxy.
    """
    of_user = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    cluster = address.rpartition(":")[0]
    return ",".join(filter(None, [of_user, "127.0.0.1", "localhost", cluster]))


def needs_token_mode() -> bool:
    """Return whether this user has a token, and the environment does not say to send it.

    `ray start` requires a token by default, and rejects a driver that was not configured to send one.
    """
    has_token = "RAY_AUTH_TOKEN" in os.environ or TOKEN.exists()
    return has_token and "RAY_AUTH_MODE" not in os.environ
