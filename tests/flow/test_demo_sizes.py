import pytest

from common.flow.demo_sizes import Sizes


@pytest.mark.parametrize(("batch", "prompt", "response", "samples"), [(2, 3, 5, 7), (1, 1, 1, 1), (4, 256, 0, 1)])
def test_responses_and_samples_reach_everything_but_the_query(batch, prompt, response, samples):
    sizes, tokens = Sizes(batch, prompt, response, samples), batch * samples * (prompt + response)
    assert sizes.query_bytes == batch * prompt * 8
    assert (sizes.policy_bytes, sizes.reference_bytes, sizes.reward_bytes) == (tokens * 12, tokens * 8, tokens * 20)


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
