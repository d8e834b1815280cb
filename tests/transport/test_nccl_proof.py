"""Which way NCCL's bytes take, from logs as NCCL writes them, and the settings for several ranks on one GPU."""

import pytest

from common.transport.nccl_proof import read_log, several_ranks_on_one_gpu

LOG = """\
host:101:101 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
host:101:140 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via {way}
host:101:140 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
"""


@pytest.mark.parametrize("ways", [["P2P/CUMEM"], ["NET/Socket/0", "P2P/IPC", "SHM/direct/direct"]], ids=str)
def test_every_way_that_the_logs_name_is_read_once(tmp_path, ways):
    for pid, way in enumerate(ways * 2):
        (tmp_path / f"nccl.host.{pid}.log").write_text(LOG.format(way=way))
    (tmp_path / "nccl.host.7.log").write_text("NCCL INFO Bootstrap: Using lo:127.0.0.1\n")
    (tmp_path / "rendezvous").write_text("0 via Nothing/else")
    assert read_log(tmp_path) == ways


def test_from_2_30_on_several_ranks_may_share_a_gpu_and_before_they_pretend_to_be_hosts():
    new, old = (several_ranks_on_one_gpu(version, 2) for version in ((2, 30, 1), (2, 29, 9)))
    assert new["NCCL_MULTI_RANK_GPU_ENABLE"] == "1" and "NCCL_HOSTID" not in new
    assert "NCCL_MULTI_RANK_GPU_ENABLE" not in old
    assert old["NCCL_HOSTID"] != several_ranks_on_one_gpu((2, 29, 9), 1)["NCCL_HOSTID"]
