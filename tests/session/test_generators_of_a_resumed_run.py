"""A script that restores its random generators before the loop goes on bit for bit, also in the midst of an epoch."""

from __future__ import annotations

from typing import Any

import torch
from kit.rank_pool import RankPool
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group

STOP = 3


class Noisy(TensorDataset):
    """Draws from the global generator for each sample, as augmentations do."""

    def __getitem__(self, index: int) -> Any:
        (sample,) = super().__getitem__(index)
        return sample + torch.randn(sample.shape)


def train(session: Session, model: nn.Module, num_steps: int) -> None:
    samples = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
    for batch in session.batches(DataLoader(Noisy(samples), 2, shuffle=True)):
        model(batch).square().mean().backward()
        session.step()
        if session.steps == num_steps:
            break


def resumed(rank: int, size: int) -> tuple[list[Tensor], list[Tensor]]:
    torch.manual_seed(rank)

    def begin(weights: dict[str, Tensor] | None) -> tuple[Session, nn.Module]:
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        if weights is not None:
            model.load_state_dict(weights)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        plan = Plan.parse("dense")
        return Session(model, optimizer, group=Group.connect(), plan=plan, recorder=Recorder(None)), model

    session, model = begin(None)
    samples = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
    kept: tuple[Any, ...] = ()
    for batch in session.batches(DataLoader(Noisy(samples), 2, shuffle=True)):
        model(batch).square().mean().backward()
        session.step()
        if session.steps == STOP:
            weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            kept = (weights, session.state_dict(), torch.get_rng_state())
    whole = [parameter.detach().clone() for parameter in model.parameters()]
    session.close()

    weights, state, generators = kept
    session, model = begin(weights)
    session.load_state_dict(state)
    torch.set_rng_state(generators)
    train(session, model, 8)
    parts = [parameter.detach().clone() for parameter in model.parameters()]
    session.close()
    return whole, parts


def test_generators_that_were_restored_before_the_loop_are_as_they_were_in_it(rank_pool: RankPool) -> None:
    for whole, parts in rank_pool.run_in_process_group(2, resumed):
        assert all(map(torch.equal, whole, parts))
