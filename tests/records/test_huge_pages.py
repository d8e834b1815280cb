# SPDX-License-Identifier: Apache-2.0
"""Test which memory gets huge pages: how a record says it, and the script that changes it for one command."""

import os
import subprocess

import pytest
from conftest import ROOT

from dataflow.records import machine
from dataflow.records.machine import (
    PRIVATE_HUGE_PAGES,
    machine_line,
    machine_values,
    read_shared_memory_huge_pages,
)

SCRIPT = ROOT / "dataflow" / "machine" / "huge_pages.sh"
HAS_HUGE_PAGES = PRIVATE_HUGE_PAGES.exists()
WITHOUT = "tmpfs /dev/shm tmpfs rw,relatime,size=24684084k 0 0"
WITHIN_SIZE = "shm /dev/shm tmpfs rw,nosuid,size=65536k,huge=within_size 0 0"
ON_DISK = "/dev/vda1 / ext4 rw,huge=always 0 0"


@pytest.mark.parametrize(
    ("lines", "setting"),
    [
        ([WITHOUT], "never"),
        ([WITHIN_SIZE], "within_size"),
        ([WITHOUT, WITHIN_SIZE], "within_size"),
        ([WITHIN_SIZE, WITHOUT], "never"),
        ([ON_DISK], None),
    ],
)
def test_the_setting_of_dev_shm_is_that_of_its_last_mount(monkeypatch, tmp_path, lines, setting):
    mounts = tmp_path / "mounts"
    others = ["proc /proc proc rw 0 0", "tmpfs /tmp tmpfs rw,huge=advise 0 0"]
    mounts.write_text("\n".join([*others, *lines, ""]))
    monkeypatch.setattr(machine, "MOUNTS", mounts)
    assert read_shared_memory_huge_pages() == setting


def test_the_line_of_a_machine_names_huge_pages_in_dev_shm_only_if_there_are_any():
    private = {"transparent_hugepages": "[always] madvise never"}
    assert "transparent huge pages always, Python" in machine_line(private)
    both = {**private, "shared_memory_hugepages": "always"}
    assert "transparent huge pages always, in /dev/shm always, Python" in machine_line(both)


def test_a_record_from_before_the_setting_was_stored_is_of_the_same_machine():
    keys = ("kernel", "shared_memory_hugepages")
    old = {"kernel": "6.18"}
    assert machine_values(old, keys) == machine_values({**old, keys[1]: "never"}, keys)
    assert machine_values(old, keys) != machine_values({**old, keys[1]: "always"}, keys)


def run_script(*words, shared_before="never"):
    """Run the script in mounts of its own: the kernel's setting is a file there, and /dev/shm is empty."""
    command = f"""
        mount --bind "$setting" {PRIVATE_HUGE_PAGES}
        mount -t tmpfs -o huge={shared_before} tmpfs /dev/shm
        export DATA_FLOW_LOCK=/dev/shm
        sh {SCRIPT} "$@"; code=$?
        echo "after: $(cat "$setting") $(grep ' /dev/shm ' /proc/mounts | tail -n 1 | grep -o 'huge=[a-z_]*')"
        exit $code
    """
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, "sh", *words],
        check=False, capture_output=True, text=True, timeout=30,
    )  # fmt: skip


@pytest.fixture
def setting(monkeypatch, tmp_path):
    """Return a file in the place of the kernel's setting."""
    if os.geteuid() != 0 or not HAS_HUGE_PAGES:
        pytest.skip("only root can change huge pages, where the kernel has them")
    path = tmp_path / "enabled"
    path.write_text("always [madvise] never\n")
    monkeypatch.setenv("setting", str(path))
    return path


@pytest.mark.parametrize(
    ("shared_before", "restored"), [("never", []), ("advise", ["huge=advise"])]
)
def test_the_script_changes_the_settings_for_one_command_and_restores_them(
    setting, shared_before, restored
):
    shown = f"cat {PRIVATE_HUGE_PAGES}; grep ' /dev/shm ' /proc/mounts | tail -n 1; exit 3"
    words = ("always", "within_size", "sh", "-c", shown)
    ended = run_script(*words, shared_before=shared_before)
    assert ended.returncode == 3, ended.stderr
    private, shared, after = ended.stdout.splitlines()
    assert private == "always"
    assert "huge=within_size" in shared
    assert after.split() == [
        "after:",
        "madvise",
        *restored,
    ]  # without huge pages, there is no option


def test_a_signal_that_ends_the_script_restores_the_settings_too(setting):
    ended = run_script("always", "always", "sh", "-c", "kill -TERM $PPID; sleep 0.2")
    assert ended.returncode == 143
    assert ended.stdout.split() == ["after:", "madvise"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("always", "never"), "give PRIVATE SHARED COMMAND"),
        (("sometimes", "never", "true"), "sometimes: give always, madvise or never"),
        (("always", "madvise", "true"), "madvise: give always, within_size, advise or never"),
    ],
)
def test_wrong_settings_are_rejected_before_anything_changes(setting, words, error):
    ended = run_script(*words)
    assert ended.returncode == 2
    assert error in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert setting.read_text() == "always [madvise] never\n"
