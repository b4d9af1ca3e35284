"""What `Session.batches` gives answers what a loader answers."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from trimtab.data.batches import Batches
from trimtab.data.sharded_loader import Loaders


def batches(loader: object, size: int = 2) -> Batches:
    share = Loaders(0, size, 0).shard(loader)  # type: ignore[arg-type]
    return Batches(lambda: (each for each in share.epoch(0)), lambda: share.num_batches, loader)  # type: ignore[arg-type]


@pytest.mark.pattern(
    "`len(loader)`, `loader.dataset`, progress bars (`tqdm`)",
    works="work; the length is this rank's",
)
def test_the_length_is_that_of_the_rank_s_share_and_the_rest_is_the_loader_s() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(40, 1)), batch_size=4)
    ours = batches(loader)
    assert len(ours) == 5 == len(list(batches(loader)))
    assert ours.batch_size == 4
    assert len(ours.dataset) == 40
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = ours.no_such_thing


def test_a_stream_has_no_length() -> None:
    with pytest.raises(TypeError, match=r"object of type 'generator' has no len\(\)"):
        len(batches(x for x in range(3)))
