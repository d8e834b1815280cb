# SPDX-License-Identifier: Apache-2.0
"""Test --env: what is read, what is rejected, what is skipped, and what records have of it."""

import pytest
from conftest import parse_options, reject_options

from dataflow.catalogue.catalogue import TRANSPORTS, suites
from dataflow.errors import Skipped
from dataflow.plan import environment, validate
from dataflow.plan.command_line import list_members
from dataflow.plan.environment import VARIABLES, parse_environment, read_tunables, require_effect
from dataflow.plan.options import options_of
from dataflow.plan.plan import resolve_plan

JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
REFS = ("--transport", "refs")
RETAIN_MEMORY = VARIABLES["retain_memory"]
pytestmark = pytest.mark.usefixtures("no_gpu")


def parse(*flags):
    (options,) = parse_options("store", *REFS, *flags)
    return options


def test_the_text_is_split_as_a_shell_does():
    text = "A=1 MALLOC_CONF=a:-1,b:2 _b='x  y' GLIBC_TUNABLES=glibc.malloc.hugetlb=1 EMPTY="
    assert parse_environment(text) == {
        "A": "1",
        "MALLOC_CONF": "a:-1,b:2",
        "_b": "x  y",
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        "EMPTY": "",
    }
    assert parse_environment(None) == {}


@pytest.mark.parametrize(("text", "more", "reason"), [
    (" ", (), "give NAME=VALUE, several of them separated by spaces"),
    ("MALLOC_ARENA_MAX", (), "MALLOC_ARENA_MAX has no =: give NAME=VALUE"),
    ("A=1,B", (), None),
    ("A='1", (), "close every quote"),
    ("1A=1", (), "'1A' is no name of a variable: give letters, digits and _"),
    ("A-B=1", (), "'A-B' is no name of a variable"),
    ("=1", (), "'' is no name of a variable"),
    ("A=1 B=2 A=1", (), "A is there twice: give it once"),
    ("RAY_AUTH_TOKEN=a", (), "--env RAY_AUTH_TOKEN: the suite sets it itself: leave it out"),
    ("no_proxy=a", (), "--env no_proxy: the suite sets it itself"),
    ("TMPDIR=/mnt", (), "--env TMPDIR: the suite sets it itself"),
    ("RAY_CGRAPH_get_timeout=1", (), "--env RAY_CGRAPH_get_timeout: the suite sets it itself"),
    ("MALLOC_ARENA_MAX=1", ("--retain-memory",), "MALLOC_ARENA_MAX: --retain-memory sets it too: leave one of them"),
    ("THP_MEM_ALLOC_ENABLE=1", ("--huge-pages",), "--huge-pages sets it too: leave one of them out"),
    ("THP_MEM_ALLOC_ENABLE=1", ("--retain-memory",), None),
    ("HF_TOKEN=a", (), "--env HF_TOKEN: records are published, and its value may be a secret or an address"),
    ("https_proxy=http://a:b@c", (), "--env https_proxy: records are published"),
    ("A=1", ("--address", "127.0.0.1:1"), "--env: the processes of an existing cluster do not get it: leave it out"),
    ("MALLOC_MMAP_THRESHOLD=1", (), "reads it: did you mean MALLOC_MMAP_THRESHOLD_?"),
    ("MALLOC_CONF=dirty_decay_ms:-1", (), "--env MALLOC_CONF: only jemalloc reads it: give LD_PRELOAD"),
    ("LD_PRELOAD=libjemalloc.so.2", (), "LD_PRELOAD=libjemalloc.so.2: give the full path of the library"),
    (f"LD_PRELOAD={JEMALLOC} MALLOC_ARENA_MAX=1", (), "libjemalloc.so.2 takes the place of glibc's allocator"),
    (f"LD_PRELOAD={JEMALLOC} GLIBC_TUNABLES=glibc.malloc.hugetlb=1", (), "does not read GLIBC_TUNABLES: leave one of"),
    (f"LD_PRELOAD={JEMALLOC}", ("--retain-memory",), "does not read --retain-memory: leave one of them out"),
])  # fmt: skip
def test_variables_that_cannot_be_measured_are_rejected_in_one_line(text, more, reason):
    flags = (*REFS, "--env", text, *more)
    if reason is None:
        (options,) = parse_options("store", *flags)
        assert [*validate.find_variable_errors(options)] == []
    else:
        assert reason in reject_options("store", *flags)


def test_each_flag_with_variables_has_a_section_of_them():
    assert set(environment.FLAGS_WITH_VARIABLES) <= VARIABLES.keys()


def test_records_have_the_variables_by_name_and_no_folder():
    text = f"MALLOC_CONF=prof_prefix:/home/me/prof,dirty_decay_ms:-1 LD_PRELOAD=/home/me/a.so:{JEMALLOC}"
    options = parse("--env", text)
    public = "LD_PRELOAD=a.so:libjemalloc.so.2 MALLOC_CONF=prof_prefix:prof,dirty_decay_ms:-1"
    assert options.env == text
    assert options.configuration_flags == {"env": public}
    assert options.arguments["env"] == public
    assert options_of("online-dpo", {"env": public}).configuration_flags == {"env": public}


def test_equal_variables_are_one_configuration_and_no_variables_another():
    one = parse("--env", "B=2 A=1").configuration_flags
    assert one == parse("--env", "A='1'  B=2").configuration_flags == {"env": "A=1 B=2"}
    assert parse().configuration_flags == {}
    assert parse("--env", "A=1").configuration_flags != one


def test_a_value_with_a_space_is_read_again():
    (name,) = parse("--env", "A='x y'").configuration_flags.values()
    assert parse_environment(name) == {"A": "x y"}


def plan(text):
    options = parse("--env", text, "--batch-size", "4")
    return resolve_plan(TRANSPORTS["store refs"], options)[1]


@pytest.mark.parametrize(("text", "reason"), [
    ("LD_PRELOAD=/nowhere/libjemalloc.so.2", "--env LD_PRELOAD: there is no libjemalloc.so.2 at its path"),
    ("LD_PRELOAD=/nowhere/a.so:/nowhere/b.so", "there is no a.so at its path"),
    ("GLIBC_TUNABLES=glibc.malloc.huge=1", "glibc of this machine has no glibc.malloc.huge: leave it out"),
    ("GLIBC_TUNABLES=glibc.malloc.arena_max=one", "does not take glibc.malloc.arena_max=one (it uses 0x0)"),
    ("MALLOC_ARENA_MAX=many", "does not take glibc.malloc.arena_max=many (it uses 0x0)"),
    ("MALLOC_CHECK_=7", "does not take glibc.malloc.check=7"),
])  # fmt: skip
def test_what_the_machine_would_pass_over_is_skipped_with_the_reason(text, reason):
    skipped = plan(text)
    assert isinstance(skipped, Skipped)
    assert reason in str(skipped) and "\n" not in str(skipped)


def test_glibc_takes_the_variables_of_the_suite():
    known = read_tunables(RETAIN_MEMORY)
    assert int(known["glibc.malloc.mmap_threshold"], 0) == 4_000_000_000
    assert int(known["glibc.malloc.arena_max"], 0) == 1
    for name, value in RETAIN_MEMORY.items():
        assert plan(f"{name}={value}") is None
    require_effect("GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.arena_max=0x2", True)


def test_huge_pages_of_glibc_need_those_of_the_kernel():
    with pytest.raises(Skipped, match=r"no huge pages for glibc\.malloc\.hugetlb=1"):
        require_effect("GLIBC_TUNABLES=glibc.malloc.hugetlb=1", has_huge_pages=False)


def test_settings_of_glibc_are_skipped_on_a_machine_that_cannot_list_them(monkeypatch):
    monkeypatch.setattr(environment, "read_tunables", lambda variables: {})
    with pytest.raises(Skipped, match=r"glibc 2\.33 or newer"):
        require_effect("MALLOC_ARENA_MAX=1", has_huge_pages=True)


def test_the_suite_has_the_values_of_the_flag_and_each_set_once():
    (part,) = suites()["allocator"]
    sets = []
    for member in list_members(part):
        variables = parse_environment(member.flags.get("env"))
        for name in variables.keys() & RETAIN_MEMORY.keys():
            assert variables[name] == RETAIN_MEMORY[name]
        if member.flags.get("retain_memory"):
            variables |= RETAIN_MEMORY
        sets.append((frozenset(variables.items()), member.flags.get("huge_pages", False)))
    assert len(set(sets)) == len(sets)
    of_the_flag = [{name for name, _ in values} for values, _ in sets]
    retained = [names for names in of_the_flag if names <= RETAIN_MEMORY.keys()]
    sizes = sorted(len(names) for names in retained)
    # Nothing, huge pages of torch, each alone, four pairs, all but one, and all.
    assert sizes == [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4]
