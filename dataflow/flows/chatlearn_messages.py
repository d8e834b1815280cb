"""Define the messages that ChatLearn's models send each other: dicts of tensors, lists of tensors, and strings.

Keys, dtypes and shapes: alibaba/ChatLearn at 85ee7dfe (v1.0.1), examples/megatron/models (policy_inference.py,
reference.py, value_inference.py, reward_inference.py). Prompts are repeated in the dataset, so every message of a flow
has the same number of samples.

Symbols in the formulas: B samples, L padded length, p prompt lengths, a response lengths.
"""

import math
import random
from dataclasses import dataclass
from functools import partial

from dataflow.flows.flow import DRIVER, Flow, Task, of_sizes
from dataflow.flows.message import ACKNOWLEDGEMENT, Field, Message

CHARACTERS_PER_TOKEN = 4  # about
LENGTH_SEED = 20241019
MAX_LENGTH = 2**20


@dataclass
class Batch:
    """The samples of every message of a flow; raise ValueError if a sample is longer than seq_length.

    Tensors are padded to the longest prompt plus the longest response of the batch (megatron), or to seq_length (vllm).
    """

    batch_size: int = 128
    prompt_len: int | str = "512"
    response_len: int | str = "512"
    seq_length: int = 1024
    padding: str = "megatron"
    as_sent: bool = False  # some fields are views of larger tensors, as ChatLearn sends them

    def __post_init__(self) -> None:
        self.prompts = draw_lengths(self.prompt_len, self.batch_size, "--prompt-len")
        self.responses = draw_lengths(self.response_len, self.batch_size, "--response-len")
        longest = max(map(sum, zip(self.prompts, self.responses, strict=True)))
        if self.padding == "vllm" and longest > self.seq_length:
            raise ValueError(f"a sample has {longest} tokens, more than --seq-length {self.seq_length}: raise "
                             "--seq-length, or give a shorter --prompt-len or --response-len")  # fmt: skip
        self.padded = self.seq_length if self.padding == "vllm" else max(self.prompts) + max(self.responses)

    def per_sample(self, name: str, dtype: str, lengths: tuple[int, ...], view_of: int = 0) -> Field:
        """Return a list of one tensor per sample; as sent by ChatLearn, views of one tensor of [samples, view_of]."""
        storage = (self.batch_size, view_of) if view_of and self.as_sent else ()
        return Field(name, dtype, lengths=lengths, storage=storage)

    def strings(self, name: str, lengths: tuple[int, ...]) -> Field:
        return Field(name, "str", lengths=tuple(CHARACTERS_PER_TOKEN * tokens for tokens in lengths))

    def padded_to(self, name: str, dtype: str, shorter: int = 0) -> Field:
        return Field(name, dtype, (self.batch_size, self.padded - shorter))


of_samples = partial(of_sizes, Batch)  # a flow of messages of samples


def draw_lengths(spec: int | str, count: int, flag: str) -> tuple[int, ...]:
    """Return `count` lengths, the same ones for the same arguments in every process; raise ValueError for a bad spec.

    `lognormal:200:0.6:512` has median, sigma of the logarithm, and largest. The flag is a part of the seed, so that
    prompts and responses differ.
    """
    kind, *numbers = str(spec).split(":")
    generator = random.Random(f"{LENGTH_SEED} {flag} {spec}")
    try:
        if kind == "lognormal":
            median, sigma, limit = numbers
            shortest, longest, mean = 1, int(limit), math.log(float(median))
            lengths = [round(generator.lognormvariate(mean, float(sigma))) for _ in range(count)]
        elif kind == "uniform":
            shortest, longest = map(int, numbers)
            lengths = [generator.randint(shortest, longest) for _ in range(count)]
        else:
            shortest = longest = int(spec)
            lengths = [shortest] * count
    except (ValueError, OverflowError):
        raise ValueError(f"{flag} {spec}: give 389, lognormal:200:0.6:512 or uniform:10:512") from None
    if not 1 <= shortest <= longest <= MAX_LENGTH:
        raise ValueError(f"{flag} {spec}: lengths must be from 1 to {MAX_LENGTH}, the shortest first")
    return tuple(min(max(length, 1), longest) for length in lengths)


def query(batch: Batch) -> Message:
    """8 Σp bytes."""
    return Message((batch.per_sample("input_ids", "int64", batch.prompts),))


def policy(batch: Batch) -> Message:
    """13 B L - 4 B + 8 Σp + characters."""
    return Message((
        batch.padded_to("all_tokens", "int64"),
        batch.padded_to("logprobs", "float32", 1),
        batch.padded_to("loss_mask", "bool"),
        batch.per_sample("no_padded_query_ids", "int64", batch.prompts),
        batch.strings("str_prompts", batch.prompts),
        batch.strings("str_outputs", batch.responses),
    ))  # fmt: skip


def reward(batch: Batch, values: bool = False) -> Message:
    """17 B L + 8 Σa + 8 Σp + 9 B + characters, and 4 Σa more with `values`, which PPO has.

    ChatLearn's rm_rewards is a flat list of floats, 9 bytes each when pickled; here it is a list of lists of one float.
    """
    fields = [
        batch.padded_to("all_token_ids_right_padded", "int64"),
        Field("action_start_indices", "int64", (batch.batch_size,)),
        # Views of tensors that the reward model received, old_logprobs and old_values (reward_inference.py:445).
        batch.per_sample("action_logprobs", "float32", batch.responses, view_of=batch.padded - 1),
    ]
    if values:
        fields.append(batch.per_sample("action_values", "float32", batch.responses, view_of=batch.padded))
    fields += [
        batch.per_sample("action_rewards", "float32", batch.responses),
        batch.padded_to("loss_mask", "bool"),
        batch.padded_to("ref_logprobs", "float32", 1),
        batch.padded_to("old_logprobs", "float32", 1),
        batch.per_sample("no_padded_query_ids", "int64", batch.prompts),
        batch.strings("str_prompts", batch.prompts),
        Field("rm_rewards", "floats", lengths=(1,) * batch.batch_size),
    ]
    return Message(tuple(fields))


def slime(batch: Batch) -> Flow:
    """What slime and miles send to training: a dict of Python lists (_convert_samples_to_train_data) and one tensor.

    The ids of the samples are a tensor here, so that the message can hold its sequence number.
    """
    both = tuple(map(sum, zip(batch.prompts, batch.responses, strict=True)))
    one = (1,) * batch.batch_size
    message = Message((
        Field("sample_indices", "int64", (batch.batch_size,)),
        Field("tokens", "ints", lengths=both),
        Field("response_lengths", "ints", lengths=one),
        Field("rewards", "floats", lengths=one),
        Field("raw_reward", "floats", lengths=one),
        Field("truncated", "ints", lengths=one),
        Field("loss_masks", "ints", lengths=batch.responses),
        Field("rollout_log_probs", "floats", lengths=batch.responses),
    ))  # fmt: skip
    tasks = (Task("rollout", (DRIVER,), message), Task("trainer", ("rollout",), ACKNOWLEDGEMENT))
    return Flow("slime", "slime: lists of numbers", query(batch), tasks, returns=("trainer",))


def rlhf(name: str, title: str, batch: Batch, has_value: bool = False, has_rule: bool = False) -> Flow:
    """policy -> reference; policy, reference -> reward, whose result returns.

    `has_value` adds policy -> value -> reward, and the values return too. `has_rule` adds query, policy -> reward1: a
    reward by rule on a CPU (reward_math.py at 3401ed57). ChatLearn sends it as a list of numbers; here it is a tensor,
    so that the message can hold its sequence number.
    """
    tasks = [
        Task("policy", (DRIVER,), policy(batch)),
        Task("reference", ("policy",), Message((batch.padded_to("ref_logprobs", "float32", 1),))),
    ]
    if has_value:
        tasks.append(Task("value", ("policy",), Message((batch.padded_to("old_values", "float32"),))))
    tasks.append(Task("reward", tuple(task.name for task in tasks), reward(batch, has_value)))
    if has_rule:
        scores = Message((Field("math_rewards", "float64", (batch.batch_size,)),))
        tasks.append(Task("reward1", (DRIVER, "policy"), scores))
    returns = tuple(task.name for task in tasks if task.name in ("value", "reward", "reward1"))
    return Flow(name, title, query(batch), tuple(tasks), returns)
