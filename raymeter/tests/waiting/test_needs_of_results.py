# SPDX-License-Identifier: Apache-2.0
"""Whether a task needs an earlier result is read from the code, also if each task has a function of its own."""

import os
from pathlib import Path

import pytest
from raymeter.profile import results
from raymeter.profile.results import Need, find_need

PHASES = """
class PPO:
    def log_probs(self, batch):
        {first}

    def values(self, batch):
        {later}

    def keep(self, value):
        self.kept = value

    def step(self, batch):
        {step}

def main():
    trainer = PPO()
    for batch in range(9):
        trainer.step(batch)
"""
GET = "return ray.get(self.reference.forward.remote(batch))  # first"
LATER = "return ray.get(self.critic.forward.remote(batch))  # later"


def need_in(folder: Path, step: str, first: str = GET, later: str = LATER) -> Need:
    """Return whether the line with "later" needs what the one with "first" gets."""
    lines = step.replace("\n", "\n        ")
    return need_of(folder, PHASES.format(first=first, later=later, step=lines))


def make_folder(folder: Path) -> Path:
    """Return a folder for another program, because each file is read only once."""
    inner = folder / "other"
    inner.mkdir()
    return inner


def need_of(folder: Path, text: str) -> Need:
    path = folder / "program.py"
    path.write_text(text)
    os.utime(path, (0.5, 0.5))
    numbers = {}
    for number, line in enumerate(text.splitlines(), 1):
        for name in ("first", "later"):
            if line.endswith(f"# {name}"):
                numbers[name] = number
    return find_need(f"{path}:{numbers['first']}", f"{path}:{numbers['later']}", start=1.0)


@pytest.mark.parametrize("step", [
    "return self.log_probs(batch), self.values(batch)",
    "a = self.log_probs(batch)\nb = self.values(batch)\nreturn a - b",
    "result = {'a': self.log_probs(batch)}\nresult = {'b': self.values(batch)}",
    "a = self.log_probs(batch)\nprint(a.mean())\nbatch = batch + 1\nb = self.values(batch)",
    "for part in batch:\n    a = self.log_probs(part)\n    b = self.values(part)",
    "if batch:\n    a = self.log_probs(batch)\nb = self.values(batch)",
    "old = batch\na = self.log_probs(batch)\nb = self.values(old)",
])  # fmt: skip
def test_phases_that_get_no_result_of_each_other_need_none(step, tmp_path):
    assert need_in(tmp_path, step) == Need.NO


@pytest.mark.parametrize("step", [
    "return self.values(self.log_probs(batch))",
    "a = self.log_probs(batch)\nreturn self.values(a)",
    "a = self.log_probs(batch)\nb = self.values(batch=a[0] + 1)",
    "batch['a'] = self.log_probs(batch)\nb = self.values(batch)",
    "rows = [1]\nrows.append(self.log_probs(batch))\nb = self.values(rows)",
    "rows = batch\nrows.append(self.log_probs(batch))\nb = self.values(batch)",
    "a, b = self.log_probs(batch)\nc = b\nself.values([c])",
    "a = self.log_probs(batch)\nbatch = [item + 1 for item in a]\nself.values(batch)",
    "if self.log_probs(batch) > 1:\n    self.values(batch)",
    "if self.log_probs(batch) > 1:\n    return\nself.values(batch)",
    "a = self.log_probs(batch)\nbatch = 1 if a else 2\nself.values(batch)",
    "for a in self.log_probs(batch):\n    self.values(1)",
    "for a in self.log_probs(batch):\n    if a:\n        return\nself.values(1)",
    "self.model = self.log_probs(batch)\nself.values(self.model)",
    "a = self.log_probs(batch)\nb = tokenize(a)\nself.values(b)",
    "for _ in range(3):\n    b = self.values(batch)\n    batch = self.log_probs(batch)",
])  # fmt: skip
def test_phases_that_get_what_is_made_of_a_result_need_it(step, tmp_path):
    assert need_in(tmp_path, step) == Need.YES


@pytest.mark.parametrize(("first", "step", "later"), [
    # Through an attribute of the object, which a later phase reads.
    ("self.x = ray.get(self.a.f.remote())  # first", "self.log_probs(1)\nself.values(1)",
     "return ray.get(self.b.f.remote(self.x))  # later"),
    ("return ray.get(self.a.f.remote())  # first", "self.keep(self.log_probs(1))\nself.values(1)",
     "return ray.get(self.b.f.remote(self.kept))  # later"),
    # Through an object that both phases have.
    ("batch.append(ray.get(self.a.f.remote()))  # first", "self.log_probs(batch)\nself.values(batch)", LATER),
    # Through an actor.
    (GET, "a = self.log_probs(1)\nself.critic.load.remote(a)\nself.values(1)", LATER),
    # Through a name of the module.
    ("global x; x = ray.get(self.a.f.remote())  # first", "self.log_probs(1)\nself.values(1)",
     "return ray.get(self.b.f.remote(x))  # later"),
])  # fmt: skip
def test_a_result_reaches_a_phase_in_other_ways(first, step, later, tmp_path):
    assert need_in(tmp_path, step, first, later) == Need.YES


@pytest.mark.parametrize("step", [
    "a = self.log_probs(batch)\npublish(a)\nself.values(batch)",
    "a = self.log_probs(batch)\nself.log(a)\nself.values(batch)",
    "a = self.log_probs(batch)\nself.view(a)\nself.values(batch)",  # a method of a class in another file
    "a = self.log_probs(batch)\nbatch['b'] = 1\nself.values(batch)",
    "self.log_probs(batch)\nself.values(batch)",  # perhaps an order
    "a = self.log_probs(batch)\nother.load.remote(self.critic)\nself.values(batch)",
    "for phase in (self.log_probs, self.values):\n    phase(batch)",
    "a = self.log_probs(batch)\ntry:\n    self.values(batch)\nexcept ValueError:\n    pass",
])  # fmt: skip
def test_phases_with_unknown_code_between_them_may_need_each_other(step, tmp_path):
    assert need_in(tmp_path, step) == Need.UNKNOWN


def test_a_method_that_a_subclass_has_as_well_shows_nothing(tmp_path):
    step = "self.keep(self.log_probs(batch))\n        self.values(batch)"
    text = PHASES.format(first=GET, later=LATER, step=step)
    assert need_of(tmp_path, text) == Need.NO
    text += "\nclass Other(PPO):\n    def keep(self, value):\n        self.critic.load(value)\n"
    assert need_of(make_folder(tmp_path), text) == Need.UNKNOWN


def test_a_function_of_a_module_is_no_method_of_the_same_name(tmp_path):
    step = "a = self.log_probs(batch)\n        service.keep(a)\n        self.values(batch)"
    text = PHASES.format(first=GET, later=LATER, step=step)
    assert need_of(tmp_path, text) == Need.NO
    assert need_of(make_folder(tmp_path), f"import service\n{text}") == Need.UNKNOWN


def test_so_many_functions_are_followed_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "MAX_ENTERED", 1)
    step = "return self.log_probs(batch), self.values(batch)"
    assert need_in(tmp_path, step) == Need.UNKNOWN


def test_a_changed_file_and_lines_of_two_files_show_nothing(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("a = ray.get(f.remote())\nb = ray.get(g.remote())\n")
    os.utime(path, (0.5, 0.5))
    assert find_need(f"{path}:1", f"{path}:2", start=0.1) == Need.UNKNOWN
    assert find_need(f"{path}:1", f"{path}:2", start=1.0) == Need.NO
    assert find_need(f"{path}:1", f"{path}.other:2", start=1.0) == Need.UNKNOWN


MODULE = """
def first():
    return ray.get(a.f.remote(1))  # first

def later({argument}):
    return ray.get(b.f.remote(x))  # later

for step in range(9):
    x = first()
    y = later(1)
"""


@pytest.mark.parametrize(("argument", "need"), [("x", Need.NO), ("y", Need.YES)])
def test_a_function_reads_names_of_its_module_unless_they_are_its_own(argument, need, tmp_path):
    assert need_of(tmp_path, MODULE.format(argument=argument)) == need
