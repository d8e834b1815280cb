"""Check that a file whose loading is timed as cold is not in the page cache."""

import os
from mmap import PAGESIZE

import pytest

from dataflow.studies.model_loading import page_cache


def test_a_file_is_dropped_only_if_none_of_its_pages_is_in_the_cache(monkeypatch, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(1000 * PAGESIZE + 1))
    if not page_cache.drop_from_page_cache(str(path)):
        pytest.skip("this file system keeps its files in memory")
    with path.open("rb") as file:
        assert not page_cache.has_cached_pages(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # read only what is asked for
        os.pread(file.fileno(), 1, 1000 * PAGESIZE)
        assert page_cache.has_cached_pages(file.fileno())
        with pytest.raises(BlockingIOError):  # the first page is not in the cache
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)
    monkeypatch.setattr(page_cache, "DROP_SECONDS", 0.01)
    assert not page_cache.drop_from_page_cache(str(path))
