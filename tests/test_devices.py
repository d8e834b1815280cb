from importlib import metadata

import pytest
import torch
from common.run.options import UsageError, Waived

from common.runtime import devices


@pytest.fixture
def gpus(monkeypatch):
    """gpus(count): let torch see that many."""

    def see(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return see


@pytest.mark.parametrize(
    ("count", "roles", "share"),
    [(0, 3, 0), (1, 3, 0.3333), (2, 3, 0.5), (3, 3, 1), (8, 3, 1), (1, 1, 1), (3, 7, 0.3333)],
)
def test_each_role_gets_the_largest_equal_share_of_a_gpu(count, roles, share):
    assert devices.gpus_per_role(count, roles) == share


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("roles", range(1, 9))
def test_shares_of_gpus_fit_without_splitting_a_role(count, roles):
    share = devices.gpus_per_role(count, roles)
    assert 0 < share <= 1
    roles_per_gpu = int(10_000 // (share * 10_000))
    assert roles_per_gpu * count >= roles


def test_without_a_gpu_auto_is_the_cpu(gpus):
    gpus(0)
    assert devices.resolve_device("auto") == ("cpu", 0)
    assert devices.resolve_device("cpu") == ("cpu", 0)


def test_without_a_gpu_asking_for_cuda_is_refused(gpus):
    gpus(0)
    with pytest.raises(UsageError, match="use --device cpu"):
        devices.resolve_device("cuda")


def test_gpus_are_used_unless_the_cpu_is_asked_for(gpus):
    gpus(2)
    assert devices.resolve_device("auto") == ("cuda", 2)
    assert devices.resolve_device("cuda") == ("cuda", 2)
    assert devices.resolve_device("cpu") == ("cpu", 0)


def test_nccl_is_waived_where_a_role_would_share_a_gpu():
    with pytest.raises(Waived, match="nccl needs 3 GPUs and found 2: use another --transport"):
        devices.need_nccl(2, 3)


def test_nccl_is_waived_without_the_cupy_of_torchs_cuda(monkeypatch):
    """cupy for CUDA 12 is no help to a torch of CUDA 13."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    asked = []

    def version(name):
        asked.append(name)
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(Waived, match="pip install cupy-cuda13x"):
        devices.need_nccl(3, 3)
    assert asked == ["cupy-cuda13x"]


def test_nccl_is_not_waived_with_gpus_and_cupy(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(metadata, "version", {"cupy-cuda12x": "14.2.0"}.__getitem__)
    assert devices.need_nccl(3, 3) is None


@pytest.mark.parametrize("repeats", [1, 4])
def test_the_ceiling_has_one_positive_sample_a_repeat_for_each_number_of_threads(repeats):
    results = devices.measure_ceiling([(4096, "cpu", "cpu"), (8, "cpu", "cpu")], [1, 2], repeats)
    assert [len(samples) for samples in results] == [repeats, repeats]
    assert all(seconds > 0 for samples in results for seconds in samples)


def test_the_ceiling_copies_every_edge_once_a_pass_by_the_threads_asked_for(monkeypatch):
    copied = []
    copy = torch.Tensor.copy_

    def note(destination, source):
        copied.append((torch.get_num_threads(), source.nbytes))
        return copy(destination, source)

    monkeypatch.setattr(torch.Tensor, "copy_", note)
    usual_threads = torch.get_num_threads()
    devices.measure_ceiling([(64, "cpu", "cpu"), (16, "cpu", "cpu"), (64, "cpu", "cpu")], [2, 1], repeats=3)
    passes = 2 + 3  # two are not timed
    assert copied == [(2, 64), (2, 16), (2, 64)] * passes + [(1, 64), (1, 16), (1, 64)] * passes
    assert torch.get_num_threads() == usual_threads


def test_roles_live_on_the_cpu_or_take_turns_on_the_gpus():
    assert devices.role_devices("cpu", 0, ["a", "b"]) == {"a": "cpu", "b": "cpu"}
    assert devices.role_devices("cuda", 2, ["a", "b", "c"]) == {"a": "cuda:0", "b": "cuda:1", "c": "cuda:0"}
