"""The flows by name. To add one: write a function here that returns a Flow, and name it in FLOWS.
One can also be written on the command line (common/flow/written.py), without a line of code.

Its parameters are its sizes: each is a flag of every script (common/plan/options.py), with this default.
"""

import inspect
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from common.flow.demo_sizes import Sizes
from common.flow.flow import DRIVER, Flow, Task
from common.flow.message import Field, Message, flat
from common.flow.written import ARROW, read_flow


def online_dpo(
    batch_size: int = 1024, prompt_seq_len: int = 4096, max_new_tokens: int = 0, num_samples: int = 2
) -> Flow:
    """The demo's simulation of ChatLearn's online DPO: one flat tensor a message."""
    sizes = Sizes(batch_size, prompt_seq_len, max_new_tokens, num_samples)
    return Flow(
        name="online-dpo",
        title="online DPO",
        query=flat(sizes.query_bytes),
        tasks=(
            Task("policy", (DRIVER,), flat(sizes.policy_bytes), "policy inference"),
            Task("reference", ("policy",), flat(sizes.reference_bytes)),
            Task("reward", ("policy", "reference"), flat(sizes.reward_bytes)),
        ),
        returns=("reward",),
    )


CHARACTERS = 4  # a token, about


def ppo(rows: int = 128, prompt_len: int = 512, response_len: int = 512) -> Flow:
    """ChatLearn's RLHF with PPO: its own fields, of `rows` samples of one length, views cloned.

    Keys, dtypes and shapes: alibaba/ChatLearn at 85ee7dfe, examples/megatron/models (policy_inference.py,
    reference.py, value_inference.py, reward_inference.py). rm_rewards is a list of Python floats there.
    """
    length = prompt_len + response_len
    prompts = Field("no_padded_query_ids", "int64", lengths=(prompt_len,) * rows)
    actions = (response_len,) * rows
    strings = Field("str_prompts", "str", lengths=(CHARACTERS * prompt_len,) * rows)
    policy = Message((
        Field("all_tokens", "int64", (rows, length)),
        Field("logprobs", "float32", (rows, length - 1)),
        Field("loss_mask", "bool", (rows, length)),
        prompts,
        strings,
        Field("str_outputs", "str", lengths=(CHARACTERS * response_len,) * rows),
    ))  # fmt: skip
    reward = Message((
        Field("all_token_ids_right_padded", "int64", (rows, length)),
        Field("action_start_indices", "int64", (rows,)),
        Field("action_logprobs", "float32", lengths=actions),
        Field("action_values", "float32", lengths=actions),
        Field("action_rewards", "float32", lengths=actions),
        Field("loss_mask", "bool", (rows, length)),
        Field("ref_logprobs", "float32", (rows, length - 1)),
        Field("old_logprobs", "float32", (rows, length - 1)),
        prompts,
        strings,
        Field("rm_rewards", "float64", (rows,)),
    ))  # fmt: skip
    return Flow(
        name="ppo",
        title="RLHF (PPO)",
        query=Message((Field("input_ids", "int64", lengths=(prompt_len,) * rows),)),
        tasks=(
            Task("policy", (DRIVER,), policy, "policy inference"),
            Task("reference", ("policy",), Message((Field("ref_logprobs", "float32", (rows, length - 1)),))),
            Task("value", ("policy",), Message((Field("old_values", "float32", (rows, length)),))),
            Task("reward", ("policy", "reference", "value"), reward),
        ),
        returns=("value", "reward"),
    )


def round_trip(payload_bytes: int = 1024) -> Flow:
    """One model that answers the driver."""
    return chain(payload_bytes, 1)


def chain(payload_bytes: int = 1024, roles: int = 4) -> Flow:
    """Driver -> role-1 -> role-2 -> ... -> driver, the same number of bytes on every edge."""
    names = [DRIVER, *(f"role-{index}" for index in range(1, roles + 1))]
    links = tuple(Task(name, (before,), flat(payload_bytes)) for before, name in pairwise(names))
    title = f"chain of {roles}" if roles > 1 else "round trip"
    name = f"chain-{roles}" if roles > 1 else "round-trip"
    return Flow(name, title, flat(payload_bytes), links, returns=(names[-1],))


def scatter_gather(payload_bytes: int = 1024, roles: int = 4) -> Flow:
    """The driver sends one message to every role at once and waits for all their answers."""
    names = tuple(f"role-{index}" for index in range(1, roles + 1))
    answers = tuple(Task(name, (DRIVER,), flat(payload_bytes)) for name in names)
    return Flow(f"scatter-gather-{roles}", f"scatter-gather of {roles}", flat(payload_bytes), answers, returns=names)


FLOWS: dict[str, Callable[..., Flow]] = {
    "online-dpo": online_dpo,
    "ppo": ppo,
    "round-trip": round_trip,
    "chain": chain,
    "scatter-gather": scatter_gather,
}
# The microbenchmarks of Ray's compiled-graphs article; the others are rungs of the ladder.
MICROBENCHMARKS = ("round-trip", "chain", "scatter-gather")


def sizes_of(name: str) -> dict[str, int]:
    """The sizes that a flow has, with their defaults; one that is written out has none.

    Raises:
        ValueError: there is no such flow.
    """
    if ARROW in name:
        return {}
    if name not in FLOWS:
        raise ValueError(f"there is no flow {name}: give {', '.join(FLOWS)}, or 'rollout -> trainer: 12MB'")
    return {size: parameter.default for size, parameter in inspect.signature(FLOWS[name]).parameters.items()}


def build_flow(name: str, given: Mapping[str, Any]) -> Flow:
    """The flow at these sizes; what is None or missing is the flow's own.

    Raises:
        ValueError: the sizes do not make a flow, or one is another flow's.
    """
    known, asked = sizes_of(name), {size: value for size, value in given.items() if value is not None}
    for size in asked.keys() - known.keys():
        owners = ", ".join(flow for flow in FLOWS if size in sizes_of(flow))
        own = f", or give {name} {', '.join(map(flag_of, known))}" if known else ""
        raise ValueError(f"{flag_of(size)} is for {owners}: leave it out{own}")
    return read_flow(name) if ARROW in name else FLOWS[name](**{**known, **asked})


def flag_of(size: str) -> str:
    """How a size is called on the command line."""
    return "--" + size.replace("_", "-")
