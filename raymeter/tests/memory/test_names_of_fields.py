# SPDX-License-Identifier: Apache-2.0
"""Keys of dicts are recorded only if they are names in the code."""

import pytest

pytest.importorskip("ray")
from raymeter.inside import describe


def paths(message: object) -> list[str]:
    return [field["path"] for field in describe.describe(message)]


def test_a_name_of_the_code_is_recorded() -> None:
    assert paths({"observations": b"x" * 10}) == ["observations"]


@pytest.mark.parametrize("key", ["anna {}", "anna_{}", "{}"])
def test_a_key_that_was_made_from_data_is_not(key: str) -> None:
    for number in range(2):  # asking for a key does not make a name of it
        made = key.format(f"kw_{number}{id(key)}")
        for _ in range(2):
            assert paths({made: b"x" * 10}) == ["*"]
