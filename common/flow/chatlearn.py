"""What ChatLearn's models really send each other: dicts of tensors, lists of tensors, and strings.

Keys, dtypes and shapes: alibaba/ChatLearn at 85ee7dfe (v1.0.1), examples/megatron/models (policy_inference.py,
reference.py, value_inference.py, reward_inference.py) and its DPO example. Prompts are repeated in the dataset, so
every message of a flow has the same rows.
"""

from dataclasses import dataclass

from common.flow.flow import DRIVER, Flow, Task
from common.flow.lengths import draw_lengths
from common.flow.message import WORD, Field, Message

CHARACTERS = 4  # a token, about


@dataclass(frozen=True)
class Batch:
    """The samples of a message: tokens of each prompt and response, and the length that tensors are padded to."""

    prompts: tuple[int, ...]
    responses: tuple[int, ...]
    padded: int
    as_shipped: bool = False

    @property
    def rows(self) -> int:
        return len(self.prompts)

    def per_row(self, name: str, dtype: str, lengths: tuple[int, ...], view_of: int = 0) -> Field:
        """A list of a tensor a row; as shipped views of one tensor of `view_of` items a row, all of it with each."""
        return Field(name, dtype, lengths=lengths, storage=(self.rows, view_of) if view_of and self.as_shipped else ())

    def strings(self, name: str, lengths: tuple[int, ...]) -> Field:
        return Field(name, "str", lengths=tuple(CHARACTERS * tokens for tokens in lengths))

    def padded_to(self, name: str, dtype: str, short: int = 0) -> Field:
        return Field(name, dtype, (self.rows, self.padded - short))


def batch_of(
    rows: int, prompt_len: int | str, response_len: int | str, seq_length: int, padding: str, as_shipped: bool
) -> Batch:
    """The samples of every message of a flow.

    padding: "megatron" pads to the longest prompt plus the longest response of the batch, "vllm" always to seq_length.

    Raises:
        ValueError: lengths are none, or longer than seq_length.
    """
    prompts = draw_lengths(prompt_len, rows, "--prompt-len")
    responses = draw_lengths(response_len, rows, "--response-len")
    longest = max(map(sum, zip(prompts, responses, strict=True)))
    if padding == "vllm" and longest > seq_length:
        raise ValueError(f"a sample has {longest} tokens, more than --seq-length {seq_length}: raise it, or give "
                         "shorter --prompt-len or --response-len")  # fmt: skip
    padded = seq_length if padding == "vllm" else max(prompts) + max(responses)
    return Batch(prompts, responses, padded, as_shipped)


def query(batch: Batch) -> Message:
    """8 Σp bytes."""
    return Message((batch.per_row("input_ids", "int64", batch.prompts),))


def policy(batch: Batch) -> Message:
    """13 B L - 4 B + 8 Σp + characters."""
    return Message((
        batch.padded_to("all_tokens", "int64"),
        batch.padded_to("logprobs", "float32", 1),
        batch.padded_to("loss_mask", "bool"),
        batch.per_row("no_padded_query_ids", "int64", batch.prompts),
        batch.strings("str_prompts", batch.prompts),
        batch.strings("str_outputs", batch.responses),
    ))  # fmt: skip


def reference(batch: Batch) -> Message:
    """4 B (L - 1)."""
    return Message((batch.padded_to("ref_logprobs", "float32", 1),))


def value(batch: Batch) -> Message:
    """4 B L."""
    return Message((batch.padded_to("old_values", "float32"),))


def reward(batch: Batch, values: bool = False) -> Message:
    """17 B L + 8 Σa + 8 Σp + 9 B + characters, and 4 Σa more with `values`, PPO's.

    ChatLearn's rm_rewards is a flat list of floats, 9 bytes each when pickled; here it is a list of lists of one float.
    """
    return Message((
        batch.padded_to("all_token_ids_right_padded", "int64"),
        Field("action_start_indices", "int64", (batch.rows,)),
        # Views of tensors that the reward model received, old_logprobs and old_values (reward_inference.py:445).
        batch.per_row("action_logprobs", "float32", batch.responses, view_of=batch.padded - 1),
        *[batch.per_row("action_values", "float32", batch.responses, view_of=batch.padded)] * values,
        batch.per_row("action_rewards", "float32", batch.responses),
        batch.padded_to("loss_mask", "bool"),
        batch.padded_to("ref_logprobs", "float32", 1),
        batch.padded_to("old_logprobs", "float32", 1),
        batch.per_row("no_padded_query_ids", "int64", batch.prompts),
        batch.strings("str_prompts", batch.prompts),
        Field("rm_rewards", "floats", lengths=(1,) * batch.rows),
    ))  # fmt: skip


def rule_reward(batch: Batch) -> Message:
    """What a reward that is computed by rule gives: a number a sample (reward_math.py at 3401ed57).

    ChatLearn's is a list of numbers; here it is a tensor, so that the message can bear its number.
    """
    return Message((Field("math_rewards", "float64", (batch.rows,)),))


def pairs(batch: Batch, scored: bool) -> Message:
    """DPO's chosen and rejected answers, 24 B S + 8 B; `scored`: with the reference's two sums, 24 B S + 16 B."""
    rows, length = batch.rows, batch.padded
    return Message((
        Field("chosen", "int64", (rows, length)),
        Field("rejected", "int64", (rows, length)),
        Field("chosen_mask", "float32", (rows, 1, length)),
        Field("rejected_mask", "float32", (rows, 1, length)),
        Field("prompt_id_lens", "int64", (rows,)),
        *[Field(name, "float32", (rows,)) for name in ("reference_chosen_logps", "reference_rejected_logps") if scored],
    ))  # fmt: skip


def lists_of_numbers(batch: Batch) -> Flow:
    """What slime and miles hand to training: a dict of Python lists (_convert_samples_to_train_data), and one tensor.

    The ids of the samples are a tensor here, so that the message can bear its number.
    """
    rows = batch.rows
    both = tuple(map(sum, zip(batch.prompts, batch.responses, strict=True)))
    one = (1,) * rows
    message = Message((
        Field("sample_indices", "int64", (rows,)),
        Field("tokens", "ints", lengths=both),
        Field("response_lengths", "ints", lengths=one),
        Field("rewards", "floats", lengths=one),
        Field("raw_reward", "floats", lengths=one),
        Field("truncated", "ints", lengths=one),
        Field("loss_masks", "ints", lengths=batch.responses),
        Field("rollout_log_probs", "floats", lengths=batch.responses),
    ))  # fmt: skip
    tasks = (Task("rollout", (DRIVER,), message), Task("trainer", ("rollout",), WORD))
    return Flow("slime", "slime: lists of numbers", query(batch), tasks, returns=("trainer",))


# What a user's flow of these models sends, by the model's name; the others say it themselves.
MESSAGES = {"policy": policy, "reference": reference, "value": value, "reward": reward, "reward1": rule_reward}


def online_dpo(batch: Batch, name: str = "online-dpo", title: str = "online DPO") -> Flow:
    """policy -> reference; policy, reference -> reward. GRPO's graph is the same."""
    tasks = (
        Task("policy", (DRIVER,), policy(batch), "policy inference"),
        Task("reference", ("policy",), reference(batch)),
        Task("reward", ("policy", "reference"), reward(batch)),
    )
    return Flow(name, title, query(batch), tasks, returns=("reward",))


def grpo_math(batch: Batch) -> Flow:
    """Online DPO's graph, and a reward by rule on a CPU that reads the prompts too; both rewards return."""
    flow = online_dpo(batch)
    rule = Task("reward1", (DRIVER, "policy"), rule_reward(batch), "reward by rule")
    return Flow("grpo-math", "GRPO, math", flow.query, (*flow.tasks, rule), returns=("reward", "reward1"))


def ppo(batch: Batch) -> Flow:
    """RLHF with PPO: policy -> reference, value, reward; reference, value -> reward; value and reward return."""
    tasks = (
        Task("policy", (DRIVER,), policy(batch), "policy inference"),
        Task("reference", ("policy",), reference(batch)),
        Task("value", ("policy",), value(batch)),
        Task("reward", ("policy", "reference", "value"), reward(batch, values=True)),
    )
    return Flow("ppo", "RLHF (PPO)", query(batch), tasks, returns=("value", "reward"))


def dpo(batch: Batch) -> Flow:
    """Pairs from a dataset, scored by the reference; nothing is generated."""
    task = Task("reference", (DRIVER,), pairs(batch, scored=True))
    return Flow("dpo", "DPO", pairs(batch, scored=False), (task,), returns=("reference",))
