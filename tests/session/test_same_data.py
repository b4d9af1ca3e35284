"""A script that gives every rank the same data, without `session.batches`, is told so once."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from kit.rank_pool import RankPool
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from trimtab.data.checks import FirstGradients, problem_of
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group

DATA = TensorDataset(torch.arange(1.0, 33.0).unsqueeze(1))
TOLD = "all 2 ranks computed the same gradients in the first 3 steps"


def distributed(session: Session) -> Iterable[Any]:
    return DataLoader(DATA, 4, sampler=DistributedSampler(DATA, session.num_ranks, session.rank))


#: What a script loops over, and whether its ranks train on the same data.
SCRIPTS: dict[str, tuple[Callable[[Session], Iterable[Any]], bool]] = {
    "a plain loader": (lambda session: DataLoader(DATA, 4), True),
    "one that shuffles alike": (lambda session: DataLoader(DATA, 4, shuffle=True), True),
    "a DistributedSampler": (distributed, False),
    "session.batches": (lambda session: session.batches(DataLoader(DATA, 4)), False),
    "session.batches of one that is split": (lambda session: session.batches(distributed(session)), False),
    "gradients of zero": (lambda session: [[torch.zeros(4, 1)]] * 8, False),
}


def scripts(rank: int, size: int, folder: Path, plan: str) -> list[str]:
    said = []
    for number, (batches_of, _) in enumerate(SCRIPTS.values()):
        torch.manual_seed(0)
        model = nn.Linear(1, 1, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        recorder = Recorder(folder / str(number) if rank == 0 else None)
        session = Session(model, optimizer, group=Group.connect(), plan=Plan.parse(plan), recorder=recorder)
        with contextlib.redirect_stderr(io.StringIO()) as text:
            for _ in range(2):
                for (samples,) in batches_of(session):
                    model(samples).square().mean().backward()
                    session.step()
        session.close()
        said.append(text.getvalue())
    return said


def test_ranks_that_train_on_the_same_data_are_told_once(rank_pool: RankPool, tmp_path: Path) -> None:
    first, second = rank_pool.run_in_process_group(2, scripts, tmp_path, "dense")
    assert [text.count(TOLD) for text in first] == [int(are_same) for _, are_same in SCRIPTS.values()]
    assert second == [""] * len(SCRIPTS)
    lines = [json.loads(line) for line in (tmp_path / "0" / "decisions.jsonl").read_text().splitlines()]
    assert [line["record"] for line in lines] == ["data"]
    assert TOLD in lines[0]["problem"]


def test_they_are_told_under_a_plan_that_compresses_too(rank_pool: RankPool, tmp_path: Path) -> None:
    first, _ = rank_pool.run_in_process_group(2, scripts, tmp_path, "0.5/all-gather")
    assert [text.count(TOLD) for text in first] == [int(are_same) for _, are_same in SCRIPTS.values()]


def test_a_rank_tells_of_its_first_steps_once() -> None:
    own = FirstGradients()
    for norm in (1.0, 2.0, 3.0, 4.0):
        assert own.is_due is (norm == 4.0)
        own.add(norm)
    assert (own.take(), own.take(), own.is_due) == ([1.0, 2.0, 3.0], [], False)


def test_one_step_that_differs_is_enough() -> None:
    assert problem_of([[1.0, 2.0, 3.0]] * 3)
    assert not problem_of([[1.0, 2.0, 3.0]])
    assert not problem_of([[1.0, 2.0, 3.0], [1.0, 2.0, 3.5]])
    assert not problem_of([[1.0, 2.0, 3.0], []])
    assert not problem_of([[], []])
