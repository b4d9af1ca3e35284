"""Each rank has one core."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def one_core() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
