"""How many bytes each message of online DPO has, by the demo's formulas.

Source of the formulas: kevin85421/RayCG-ChatLearn, utils.py, commit 0a603161. They are a lower
bound of what ChatLearn moves; docs/demo.md says where the two differ. Every message is one flat
int64 tensor, as in the demo, so every size is a whole number of 8-byte words.
"""

from dataclasses import dataclass

INT64_BYTES = 8
FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Sizes:
    """The knobs of the demo. All are counts, none is a number of bytes.

    Raises:
        ValueError: a count is out of range, or the log-probabilities do not fill whole words.
    """

    batch_size: int = 1024
    prompt_seq_len: int = 4096
    max_new_tokens: int = 0
    num_samples: int = 2

    def __post_init__(self) -> None:
        for name, smallest in (("batch_size", 1), ("prompt_seq_len", 1), ("max_new_tokens", 0), ("num_samples", 1)):
            value = getattr(self, name)
            if value < smallest:
                flag = "--" + name.replace("_", "-")
                raise ValueError(f"{flag} is {value}: give {smallest} or more")
        if self._tokens % 2:
            raise ValueError(
                "batch size x samples x sequence length is odd, so the float32 log-probabilities "
                "do not fill whole int64 words: make one of the three even"
            )

    @property
    def _tokens(self) -> int:
        """Tokens of all samples: batch x samples x (prompt + response)."""
        return self.batch_size * self.num_samples * (self.prompt_seq_len + self.max_new_tokens)

    @property
    def query_bytes(self) -> int:
        """Prompt token ids, int64 [batch, prompt]; the demo does not repeat them per sample."""
        return self.batch_size * self.prompt_seq_len * INT64_BYTES

    @property
    def policy_bytes(self) -> int:
        """Token ids int64 and log-probabilities float32, both [batch x samples, prompt + response]."""
        return self._tokens * (INT64_BYTES + FLOAT32_BYTES)

    @property
    def reference_bytes(self) -> int:
        """The reference model's answer; the demo counts int64 where ChatLearn has float32."""
        return self._tokens * INT64_BYTES

    @property
    def reward_bytes(self) -> int:
        """Everything that the reward model read, handed on to the trainer."""
        return self.policy_bytes + self.reference_bytes
