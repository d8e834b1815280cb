import pytest

from common.flow.demo_sizes import Sizes

MIB = 2**20


def message_bytes(sizes):
    return sizes.query_bytes, sizes.policy_bytes, sizes.reference_bytes, sizes.reward_bytes


def test_defaults_give_the_demos_sizes():
    assert message_bytes(Sizes()) == (32 * MIB, 96 * MIB, 64 * MIB, 160 * MIB)


def test_tokens_of_responses_reach_everything_but_the_query():
    sizes = Sizes(batch_size=2, prompt_seq_len=3, max_new_tokens=5, num_samples=7)
    tokens = 2 * 7 * (3 + 5)
    assert message_bytes(sizes) == (2 * 3 * 8, tokens * 12, tokens * 8, tokens * 20)


def test_samples_multiply_everything_but_the_query():
    one, four = Sizes(num_samples=1), Sizes(num_samples=4)
    assert four.query_bytes == one.query_bytes
    assert message_bytes(four)[1:] == tuple(4 * count for count in message_bytes(one)[1:])


def test_smallest_sizes_are_whole_words():
    assert message_bytes(Sizes(1, 1, 1, 1)) == (8, 24, 16, 40)


def test_log_probabilities_that_end_in_half_a_word_are_refused():
    with pytest.raises(ValueError, match="odd"):
        Sizes(batch_size=3, prompt_seq_len=5, max_new_tokens=0, num_samples=1)


@pytest.mark.parametrize(
    ("field", "value"),
    [("batch_size", 0), ("batch_size", -4), ("prompt_seq_len", 0), ("max_new_tokens", -2), ("num_samples", 0)],
)
def test_counts_out_of_range_are_refused_by_the_name_of_their_flag(field, value):
    with pytest.raises(ValueError, match=f"--{field.replace('_', '-')} is {value}"):
        Sizes(**{field: value})
