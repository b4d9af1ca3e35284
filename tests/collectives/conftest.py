"""What tests of this folder share."""

from __future__ import annotations

import pytest
from fake_cuda import FakeCuda, install


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """A model of CUDA's streams in the place of torch's."""
    return install(monkeypatch)
