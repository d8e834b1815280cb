# SPDX-License-Identifier: Apache-2.0
"""Define the flows of ChatLearn's models, whose messages are dicts of tensors, lists of tensors, and strings.

chatlearn_messages.toml has the messages. Prompts are repeated in the dataset, so every message of a flow has the same
number of samples.
"""

import math
import random
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, Field, Message
from dataflow.flows.sizes import of_sizes

MESSAGES = tomllib.loads(
    Path(__file__).with_name("chatlearn_messages.toml").read_text(encoding="utf-8")
)
CHARACTERS_PER_TOKEN = 4  # about
LENGTH_SEED = 20241019
MAX_LENGTH = 2**20


@dataclass
class SampleBatch:
    """The samples of every message of a flow; raise ValueError for lengths that are not possible.

    Tensors are padded to the longest prompt plus the longest response of the batch (megatron), or to seq_length (vllm).
    With vllm, no sample may be longer than that.
    """

    batch_size: int = 128
    prompt_len: int | str = "512"
    response_len: int | str = "512"
    seq_length: int = 1024
    padding: str = "megatron"
    as_sent: bool = False  # some fields are views of larger tensors, as ChatLearn sends them

    def __post_init__(self) -> None:
        """Draw the lengths of all samples, and set the length to which tensors are padded.

        Raise ValueError if a length cannot be read or is not possible, or with vllm, if a sample is too long.
        """
        prompts = draw_lengths(self.prompt_len, self.batch_size, flag="--prompt-len")
        responses = draw_lengths(self.response_len, self.batch_size, flag="--response-len")
        both = tuple(map(sum, zip(prompts, responses, strict=True)))
        self.lengths = {
            "prompts": prompts,
            "responses": responses,
            "both": both,
            "one": (1,) * self.batch_size,
        }
        longest = max(both)
        if self.padding == "vllm" and longest > self.seq_length:
            raise ValueError(
                f"a sample has {longest} tokens, more than --seq-length {self.seq_length}: "
                "raise --seq-length, or give a shorter --prompt-len or --response-len"
            )
        self.padded = self.seq_length if self.padding == "vllm" else max(prompts) + max(responses)

    def message(self, name: str, *left_out: str) -> Message:
        """Return a message of chatlearn_messages.toml without these fields."""
        fields = {
            field: text.split() for field, text in MESSAGES[name].items() if field not in left_out
        }
        return Message(tuple(self.make_field(field, *words) for field, words in fields.items()))

    def make_field(self, name: str, dtype: str, form: str, storage: str = "") -> Field:
        """Return the field that a line of chatlearn_messages.toml describes; raise KeyError for an unknown form.

        It is a padded tensor, or a list with a tensor or string per sample. `storage` counts with `as_sent` only.
        """
        widths = {
            "padded": (self.padded,),
            "padded-1": (self.padded - 1,),
            "mask": (1, self.padded),
            "sample": (),
        }
        if form in widths:
            return Field(name, dtype, shape=(self.batch_size, *widths[form]))
        lengths = self.lengths[form]
        if dtype == "str":
            lengths = tuple(CHARACTERS_PER_TOKEN * tokens for tokens in lengths)
        is_view = storage and self.as_sent
        return Field(
            name,
            dtype,
            lengths=lengths,
            storage=(self.batch_size, *widths[storage]) if is_view else (),
        )


def of_samples(build: Callable[[SampleBatch], Flow]) -> Callable[..., Flow]:
    """Return a flow function whose parameters are those of SampleBatch."""
    return of_sizes(SampleBatch, build)


def draw_lengths(spec: int | str, count: int, flag: str) -> tuple[int, ...]:
    """Return `count` lengths in tokens, the same ones for the same arguments in every process.

    `389` is the length of all, and `uniform:10:512` has the shortest and the longest one. `lognormal:200:0.6:512` has
    median, sigma of the logarithm, and longest: what is drawn above it gets this length. The flag is a part of the
    seed, so that prompts and responses differ. Raise ValueError for another spec, and for lengths that are not from 1
    to MAX_LENGTH.
    """
    kind, *numbers = str(spec).split(":")
    generator = random.Random(f"{LENGTH_SEED} {flag} {spec}")
    try:
        if kind == "lognormal":
            median, sigma, limit = numbers
            shortest = 1
            longest = int(limit)
            mean = math.log(float(median))
            lengths = [round(generator.lognormvariate(mean, float(sigma))) for _ in range(count)]
        elif kind == "uniform":
            shortest, longest = map(int, numbers)
            lengths = [generator.randint(shortest, longest) for _ in range(count)]
        else:
            shortest = longest = int(spec)
            lengths = [shortest] * count
    except (ValueError, OverflowError):
        raise ValueError(
            f"{flag} {spec}: give 389, lognormal:200:0.6:512 or uniform:10:512"
        ) from None
    if not 1 <= shortest <= longest <= MAX_LENGTH:
        raise ValueError(
            f"{flag} {spec}: lengths must be from 1 to {MAX_LENGTH}, the shortest first"
        )
    return tuple(min(max(length, 1), longest) for length in lengths)


def slime(batch: SampleBatch) -> Flow:
    """What slime and miles send to training."""
    tasks = (
        Task("rollout", (DRIVER,), batch.message("slime")),
        Task("trainer", ("rollout",), ACKNOWLEDGEMENT),
    )
    return Flow(
        "slime", "slime: lists of numbers", batch.message("query"), tasks, returns=("trainer",)
    )


def offline_dpo(batch: SampleBatch) -> Flow:
    """Pairs of answers from a dataset -> reference, which scores them. Nothing is generated."""
    reference = Task("reference", (DRIVER,), batch.message("scored_pairs"))
    return Flow("dpo", "DPO", batch.message("pairs"), (reference,), returns=("reference",))


def rlhf(
    name: str, title: str, batch: SampleBatch, has_value: bool = False, has_rule: bool = False
) -> Flow:
    """policy -> reference; policy, reference -> reward, whose result returns.

    `has_value` adds policy -> value -> reward, and the values return too. `has_rule` adds query, policy -> reward1.
    """
    models = ("policy", "reference", "value") if has_value else ("policy", "reference")
    tasks = [
        Task(
            model,
            reads=(DRIVER if model == "policy" else "policy",),
            sends=batch.message(model),
        )
        for model in models
    ]
    left_out = () if has_value else ("action_values",)
    reward = batch.message("reward", *left_out)
    tasks.append(Task("reward", reads=models, sends=reward))
    if has_rule:
        tasks.append(Task("reward1", reads=(DRIVER, "policy"), sends=batch.message("reward1")))
    returns = tuple(task.name for task in tasks if task.name in ("value", "reward", "reward1"))
    return Flow(name, title, query=batch.message("query"), tasks=tuple(tasks), returns=returns)
