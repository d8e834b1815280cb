"""The data paths that the logs of NCCL and UCX name, and the settings for several ranks on one GPU."""

from pathlib import Path

from dataflow.transports.process_group import nccl_settings, read_logged_paths

NCCL = """\
host:101:101 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
host:101:140 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via {path}
host:101:140 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
"""
UCX = """\
[1] [vm:1:0]   | {operation} into host memory from host |
[1] [vm:1:0]   +--------+-------------+-------------+
[1] [vm:1:0]   | Range  | Description |   Config    |
[1] [vm:1:0]   +--------+-------------+-------------+
[1] [vm:1:0]   | 0..inf | zero-copy   | {transport} |
[1] [vm:1:0]   +--------+-------------+-------------+
"""


def test_each_data_path_in_the_logs_of_nccl_is_returned_once(tmp_path):
    paths = ["NET/Socket/0", "P2P/IPC", "SHM/direct/direct"]
    for pid, path in enumerate(paths * 2):
        (tmp_path / f"nccl.host.{pid}.log").write_text(NCCL.format(path=path))
    (tmp_path / "nccl.host.7.log").write_text("NCCL INFO Bootstrap: Using lo:127.0.0.1\n")
    (tmp_path / "rendezvous").write_text("0 via Nothing/else")
    assert read_logged_paths(tmp_path, "nccl") == paths


def test_before_2_30_each_rank_on_one_gpu_has_another_host_name():
    new, old = (nccl_settings(Path("/tmp"), version, True, 2) for version in ((2, 30, 1), (2, 29, 9)))
    assert new["NCCL_MULTI_RANK_GPU_ENABLE"] == "1" and "NCCL_HOSTID" not in new
    assert "NCCL_MULTI_RANK_GPU_ENABLE" not in old
    assert old["NCCL_HOSTID"] != nccl_settings(Path("/tmp"), (2, 29, 9), True, 1)["NCCL_HOSTID"]
    assert set(nccl_settings(Path("/tmp"), (2, 30), False, 1)) == {"NCCL_DEBUG", "NCCL_DEBUG_FILE"}


def test_the_transports_of_one_sided_reads_are_found_in_the_logs_of_ucx(tmp_path):
    read = "remote memory read by ucp_get*(multi)"
    for pid, transport in enumerate(["tcp/lo", "cma/memory", "tcp/lo"]):
        (tmp_path / f"ucx.{pid}.log").write_text(UCX.format(operation=read, transport=transport))
    (tmp_path / "ucx.9.log").write_text(UCX.format(operation="active message by ucp_am_send*", transport="sysv/memory"))
    assert read_logged_paths(tmp_path, "ucx") == ["cma/memory", "tcp/lo"]
