"""Payloads that users know, as flags, with their sources; --scale makes the rows of any of them fewer.

Where a source says only how large a batch is, the fields are those that its system sends to training.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from common.flow.message import ITEM_BYTES


@dataclass(frozen=True)
class Preset:
    """A batch of `rows` samples.

    flags: of so many rows.
    source: where shape and numbers are from.
    """

    rows: int
    flags: Callable[[int], list[str]]
    source: str


def _batch(edge: str, fields: Sequence[tuple[str, str, int]]) -> Callable[[int], list[str]]:
    """One message of dense fields: name, dtype, items a sample."""

    def flags(rows: int) -> list[str]:
        sizes = [f"{name} {dtype} {rows * items * ITEM_BYTES[dtype]}B" for name, dtype, items in fields]
        return ["--flow", f"{edge}: {', '.join(sizes)}"]

    return flags


def _verl(prompt: int, response: int) -> list[tuple[str, str, int]]:
    """What verl's DataProto brings to an update of the actor (dp_actor's select_keys): 16 R + 24 T bytes a sample."""
    both = prompt + response
    whole = [(name, "int64", both) for name in ("input_ids", "attention_mask", "position_ids")]
    answers = [(name, "float32", response) for name in ("old_log_probs", "advantages")]
    return [("responses", "int64", response), *whole, *answers]


def _chatlearn(padding: str) -> Callable[[int], list[str]]:
    return lambda rows: [
        "--flow", "ppo", "--rows", str(rows), "--prompt-len", "512", "--response-len", "512", "--padding", padding,
    ]  # fmt: skip


PRESETS = {
    "demo": Preset(1024, lambda rows: ["--batch-size", str(rows)], "kevin85421/RayCG-ChatLearn at 0a603161"),
    "chatlearn-7b-megatron": Preset(
        128,
        _chatlearn("megatron"),
        "ChatLearn 85ee7dfe, llama2-7B script: 8 messages an episode, lengths at their most",
    ),
    "chatlearn-7b-vllm": Preset(
        512, _chatlearn("vllm"), "the same with vLLM: 2 messages an episode, padded to seq_length 1024"
    ),
    "verl-dapo": Preset(
        1024, _batch("rollout -> actor", _verl(8192, 10240)), "verl#2847: 64 x 16 samples of 8k + 10k tokens"
    ),
    "verl-gbs128": Preset(
        1024, _batch("rollout -> actor", _verl(2048, 8192)), "verl#5400: 128 x 8 samples of 2k + 8k tokens"
    ),
    "openrlhf-256x16": Preset(
        4096, _batch("rollout -> trainer", [("sequences", "int64", 8192)]), "OpenRLHF#998: 256 x 16 x 8192 int64"
    ),
    "slime-lists": Preset(
        128,
        lambda rows: ["--flow", "slime", "--rows", str(rows), "--prompt-len", "512", "--response-len", "512"],
        "slime's _convert_samples_to_train_data: Python lists of numbers; the size is a choice",
    ),
    "transferqueue-perftest": Preset(
        1024,
        _batch(
            "client -> storage",
            [(f"dense_{index}", "float32", 8192) for index in range(4)]
            + [(f"nested_{index}", "float32", 4096) for index in range(4)]
            + [(f"text_{index}", "uint8", 32768) for index in range(2)],
        ),
        "TransferQueue's perf test: 10 fields, 256 MiB; nested fields at their mean, strings as bytes",
    ),
}


def flags_of(name: str, scale: float) -> list[str]:
    """The flags of a preset with `scale` times its rows, at least one."""
    preset = PRESETS[name]
    return preset.flags(max(1, round(preset.rows * scale)))
