# SPDX-License-Identifier: Apache-2.0
"""A variable is a setting of a class only if it decides what the class returns when it pickles itself."""

import os
import textwrap

import pytest
from raymeter.profile.asked_variables import find_asked_variables

# As verl 0.9.1 has it, in verl/protocol.py.
VERL = """
if os.getenv("VERL_DATAPROTO_SERIALIZATION_METHOD") == "numpy":
    return (
        serialize_tensordict(self.batch) if self.batch is not None else None,
        self.non_tensor_batch,
        self.meta_info,
    )
else:
    buffer = io.BytesIO()
    torch.save(self.batch, buffer)
    buffer_bytes = buffer.getvalue()
    return buffer_bytes, self.non_tensor_batch, self.meta_info
"""


def ask(folder, body: str) -> dict[str, str]:
    """Return the variables for which a function with this body asks."""
    file = folder / "data.py"
    text = "class Batch:\n    def __getstate__(self):\n"
    file.write_text(text + textwrap.indent(body, 8 * " "))
    os.utime(file, (0, 0))  # before the program
    return find_asked_variables(f"{file}:2", 1.0)


def test_the_variable_of_verl_is_found(tmp_path):
    assert ask(tmp_path, VERL) == {"VERL_DATAPROTO_SERIALIZATION_METHOD": "numpy"}


@pytest.mark.parametrize("body", [
    "if os.environ.get('WAY', 'bytes') == 'numpy':\n    return 1\nreturn 2",
    "if os.environ.get('WAY', default_way()) == 'numpy':\n    return 1\nreturn 2",
    "if self.batch and os.environ['WAY'] == 'numpy':\n    return 1\nreturn 2",
    "if not os.getenv('WAY') == 'numpy':\n    return 1\nreturn 2",
    "if self.is_empty:\n    return 0\nelif os.getenv('WAY') == 'numpy':\n    return 1\nreturn 2",
    "if os.getenv('WAY') == 'numpy':\n    return 1",
    "return 1 if os.getenv('WAY') == 'numpy' else 2",
])  # fmt: skip
def test_variables_that_decide_what_is_returned_are_found(tmp_path, body):
    assert ask(tmp_path, body) == {"WAY": "numpy"}


@pytest.mark.parametrize("body", [
    "if os.environ.get('WAY', 'numpy') == 'numpy':\n    return 1\nreturn 2",
    "if os.getenv('WAY', default='numpy') == 'numpy':\n    return 1\nreturn 2",
    "if os.getenv('DEBUG') == '1':\n    print(self)\nreturn 2",
    "if os.getenv('DEBUG') == '1':\n    print(self)\n    return 2\nreturn 2",
    "is_first = os.getenv('NODE') == '0'\nreturn 2",
    "return 2 if os.getenv('WAY') == 'numpy' else 2",
    "if os.getenv('DEBUG') == '1':\n    def show():\n        return 1\nreturn 2",
    "if os.getenv('RANK') == '0':\n    return 1\nreturn 2",
    "if os.environ['LOCAL_RANK'] == '0':\n    return 1\nreturn 2",
])  # fmt: skip
def test_variables_that_change_nothing_or_name_a_process_are_not(tmp_path, body):
    assert ask(tmp_path, body) == {}


def test_variables_come_in_the_order_of_the_code(tmp_path):
    lines = [f"if os.getenv('WAY_{number}') == 'on':\n    return {number}" for number in range(9)]
    assert list(ask(tmp_path, "\n".join(lines))) == [f"WAY_{number}" for number in range(9)]
