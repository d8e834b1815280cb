# SPDX-License-Identifier: Apache-2.0
"""Test that the flags of studies are structs of their own, and flat where users and records see them."""

import pickle
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
from conftest import ROOT, parse_options

from dataflow.flows.catalogue import chain
from dataflow.plan import options as options_module
from dataflow.plan.flag import Flag, flag, flags_of, require_different_names
from dataflow.plan.options import FLAGS, STUDY_FLAGS, Options, options_of
from dataflow.study import Added, Study

SHARE_A_FLAG = """
from dataclasses import replace
from dataflow.study import studies
studies()["zero"] = replace(studies()["zero"], flags=studies()["weights"].flags)
import dataflow.plan.options
"""


@dataclass(frozen=True, kw_only=True)
class JudgesFlags:
    judges: int = flag("judges", 2, "judges of an answer", int)
    is_made: bool = True  # no flag


def install(monkeypatch, **studies):
    """Let the laboratory have these studies only."""
    monkeypatch.setattr(options_module, "studies", lambda: studies)


@pytest.mark.study("weights")
@pytest.mark.study("chatlearn")
def test_each_study_has_a_struct_of_flags_which_are_flat_in_records():
    (options,) = parse_options("store", "--flow", "weights", "--receivers", "3", "--episode", "4")
    assert options.study.weights.receivers == options.sizes["receivers"] == 3
    assert options.study.chatlearn.episode == options.configuration_flags["episode"] == 4
    arguments = options.arguments
    assert (arguments["receivers"], arguments["episode"], arguments["sink"]) == (3, 4, "driver")
    assert "study" not in arguments
    of_record = options_of("weights", {"receivers": 3, "episode": 4, "flag_of_a_deleted_study": 1})
    assert of_record.study == options.study


def test_options_have_no_attribute_for_a_flag_of_a_study():
    for name, flags in STUDY_FLAGS.items():
        for made in flags_of(flags, name):
            assert not hasattr(Options(), made.name)
            assert Options().value_of(made) == made.default


def test_the_flags_of_a_dataclass_have_names_defaults_and_the_study():
    (made,) = flags_of(JudgesFlags, "judging")
    assert isinstance(made, Flag)
    assert (made.name, made.default, made.study) == ("judges", 2, "judging")


def test_two_flags_with_one_name_are_an_error():
    made = flags_of(JudgesFlags, "judging")
    require_different_names([*FLAGS, *made])
    text = "the study judging and the study verdicts both have a flag judges"
    with pytest.raises(ValueError, match=text):
        require_different_names([*made, *flags_of(JudgesFlags, "verdicts")])
    own = replace(made[0], study="")
    with pytest.raises(ValueError, match="the laboratory and the study judging both have a flag"):
        require_different_names([own, *made])


@pytest.mark.study("weights")
@pytest.mark.study("zero")
def test_two_studies_with_one_flag_cannot_be_imported():
    done = subprocess.run(
        [sys.executable, "-c", SHARE_A_FLAG], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "the study zero and the study weights both have a flag receivers" in done.stderr


@pytest.mark.study("chatlearn")
def test_a_pickle_has_the_flags_by_name_because_another_checkout_may_have_other_studies():
    (options,) = parse_options("store", "--episode", "4", "--address", "127.0.0.1:1")
    state = options.__getstate__()
    assert state["episode"] == 4 and "study" not in state
    assert pickle.loads(pickle.dumps(options)) == options
    other = Options()
    other.__setstate__(state | {"flag_of_another_checkout": 1})
    assert other == options
    del state["relay_episodes"]  # which the other checkout does not have
    other.__setstate__(state)
    assert other == options


def test_what_studies_add_to_a_flow_is_added_one_after_the_other(monkeypatch):
    seen = []

    def add_one(options, flow):
        seen.append(flow.name)
        return Added(replace(flow, name=f"{flow.name}+"), ("x",), 1, 20, 300, 4000)

    install(
        monkeypatch, first=Study(add_tasks=add_one), none=Study(), last=Study(add_tasks=add_one)
    )
    added = Options().add_tasks(chain())
    assert seen == ["chain-4", "chain-4+"]
    assert added.flow.name == "chain-4++"
    assert added[1:] == (("x", "x"), 2, 40, 600, 8000)


def test_a_study_may_decide_how_many_iterations_lie_between_two_verifications(monkeypatch):
    options = Options(check_every=2)
    install(monkeypatch, silent=Study())
    assert options.group_size == 2
    install(monkeypatch, silent=Study(), nine=Study(group_size=lambda options: 9))
    assert options.group_size == 9
    install(monkeypatch, nine=Study(group_size=lambda _: 9), four=Study(group_size=lambda _: 4))
    assert options.group_size == 4
