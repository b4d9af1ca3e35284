"""A job whose number of ranks changes in the midst of an epoch sees each sample of it once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trimtab.checkpoint.settings import CheckpointSettings
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.options import SessionOptions
from trimtab.session.session import Session
from trimtab.transport.group import Group

NUM_SAMPLES, BATCH = 144, 3


def segment(rank: int, size: int, folder: Path, num_steps: int | None) -> tuple[list[float], int, list[Any], float]:
    """What this rank sees from the newest checkpoint on, for so many steps or to the epoch's end."""
    torch.manual_seed(size)
    model, resizes = nn.Linear(1, 4), list[Any]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def adapt(before: int, now: int) -> None:
        resizes.append((before, now))
        for group in optimizer.param_groups:
            group["lr"] *= now / before

    session = Session(
        model,
        optimizer,
        group=Group.connect() if size > 1 else None,
        plan=Plan.parse("0.3/all-gather"),
        recorder=Recorder(None),
        options=SessionOptions(on_resize=adapt),
        checkpoints=CheckpointSettings(str(folder), "job"),
    )
    seen: list[float] = []
    steps = 0
    data = TensorDataset(torch.arange(float(NUM_SAMPLES)).reshape(-1, 1))
    for epoch in session.epochs(2):
        if epoch == 1:
            break
        for (batch,) in session.batches(DataLoader(data, BATCH, shuffle=True)):
            model(batch / NUM_SAMPLES).square().mean().backward()
            session.step()
            seen += batch.flatten().tolist()
            steps += 1
            if steps == num_steps:
                session.checkpoint()
                break
    session.close()
    return seen, steps, resizes, optimizer.param_groups[0]["lr"]


@pytest.mark.pattern(
    "resuming with another number of ranks during an epoch",
    works="the new ranks share the remaining samples",
)
@pytest.mark.parametrize("sizes", [(4, 2, 6), (4, 3, 4), (1, 2, 1), (2, 1, 3)])
def test_each_sample_of_an_epoch_is_seen_once_by_changing_numbers_of_ranks(
    rank_pool: RankPool, tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    seen: list[float] = []
    for number, size in enumerate(sizes):
        last = number == len(sizes) - 1
        ranks = rank_pool.run_in_process_group(size, segment, tmp_path, None if last else 3)
        assert len({steps for _, steps, _, _ in ranks}) == 1
        seen += [sample for samples, *_ in ranks for sample in samples]
        for _, _, resizes, rate in ranks:
            assert resizes == ([(sizes[number - 1], size)] if number else [])
            assert rate == pytest.approx(0.1 * size / sizes[0])
    assert set(seen) == set(range(NUM_SAMPLES)), "none is left out"
    assert len(seen) - NUM_SAMPLES < sizes[-1], "what makes the last round even, and nothing else"
