"""What tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_cuda import FakeCuda, install
from kit.rank_threads import RankThreads


@pytest.fixture(scope="session")
def rank_threads() -> Iterator[RankThreads]:
    """Ranks that are threads: for what is computed, whatever carries it."""
    threads = RankThreads()
    yield threads
    threads.close()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """A model of CUDA's streams in the place of torch's."""
    return install(monkeypatch)
