"""Whatever number a script hands over, of Python's, NumPy's or torch's, every rank converts or refuses it alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kit.rank_pool import RankPool
from torch import nn
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group
from trimtab_api.errors import UserError

#: What is a loss of 0.5, as scripts hold it.
LOSSES: list[Callable[[], Any]] = [
    lambda: 0.5,
    lambda: np.float32(0.5),
    lambda: np.float64(0.5),
    lambda: np.array(0.5),
    lambda: np.array([[0.5]]),
    lambda: torch.tensor(0.5, requires_grad=True),
    lambda: torch.tensor([[0.5]], dtype=torch.bfloat16),
    lambda: torch.tensor(0.5, dtype=torch.float64),
]
NO_LOSSES: list[Callable[[], Any]] = [
    lambda: "0.5",
    lambda: np.array([0.5, 0.5]),
    lambda: torch.ones(2),
    lambda: torch.tensor(1j),
    lambda: np.complex64(1),
    lambda: [0.5],
    lambda: {"loss": 0.5},
    lambda: 10**400,
]


def open_session(group: Group | None, directory: str | None = None) -> tuple[Session, nn.Module]:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=np.float64(0.01))
    recorder = Recorder(Path(directory) if directory else None)
    return Session(model, optimizer, group=group, plan=Plan.parse("0.5/all-gather"), recorder=recorder), model


def refused(call: Callable[[], Any]) -> str:
    try:
        call()
    except UserError as error:
        return str(error)
    return ""


def stepping(rank: int, size: int, directory: str) -> tuple[int, list[str]]:
    session, model = open_session(Group.connect() if size > 1 else None, directory if rank == 0 else None)
    said = []
    for make in [*LOSSES, *NO_LOSSES]:
        loss = make()
        model(torch.randn(2, 4)).square().mean().backward()
        said.append(refused(lambda loss=loss: session.step(loss)))
        if said[-1]:
            session.skip()
    steps = int(session.steps)
    session.close()
    return steps, said


@pytest.mark.pattern(
    "losses and metrics as NumPy's or torch's numbers",
    works="work",
)
@pytest.mark.parametrize("size", [1, 2])
def test_a_loss_is_a_plain_number_or_refused_on_every_rank(size: int, tmp_path: Path, rank_pool: RankPool) -> None:
    arguments = (size, stepping, str(tmp_path))
    answers = [stepping(0, 1, str(tmp_path))] if size == 1 else rank_pool.run_in_process_group(*arguments)
    for steps, said in answers:
        assert steps == len(LOSSES)
        assert said[: len(LOSSES)] == [""] * len(LOSSES)
        assert all(line.startswith("loss: ") and "hand over one real number" in line for line in said[len(LOSSES) :])
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines if "step_seconds" in line] == [0.5] * len(LOSSES)


def reporting(rank: int, size: int) -> list[str]:
    session, _ = open_session(Group.connect())
    said = [refused(lambda make=make: session.report(accuracy=make())) for make in [*LOSSES, *NO_LOSSES]]
    session.close()
    return said


def test_a_metric_is_refused_on_every_rank_though_rank_0_alone_records_it(rank_pool: RankPool) -> None:
    for said in rank_pool.run_in_process_group(2, reporting):
        assert said[: len(LOSSES)] == [""] * len(LOSSES)
        assert all(said[len(LOSSES) :])


def reducing(rank: int, size: int) -> list[Any]:
    session, _ = open_session(Group.connect() if size > 1 else None)
    values = [2, True, np.float32(1.5), np.int64(2), np.array([1, 2]), np.array(1.5), torch.tensor([1, 2])]
    reduced = [session.all_reduce(value, "sum") for value in values]  # type: ignore[arg-type]
    kinds = [type(each).__name__ for each in reduced]
    numbers = [each.tolist() if hasattr(each, "tolist") else each for each in reduced]
    said = [refused(lambda value=value: session.all_reduce(value)) for value in ("1", None, [1.0], torch.tensor(1j))]
    session.close()
    return [kinds, numbers, all(said)]


@pytest.mark.parametrize("size", [1, 2])
def test_a_metric_over_ranks_keeps_its_kind(size: int, rank_pool: RankPool) -> None:
    for kinds, numbers, are_refused in [reducing(0, 1)] if size == 1 else rank_pool.run_in_process_group(2, reducing):
        assert kinds == ["float", "float", "float", "float", "ndarray", "float", "Tensor"]
        assert numbers == [
            2.0 * size,
            1.0 * size,
            1.5 * size,
            2.0 * size,
            [size, 2 * size],
            1.5 * size,
            [size, 2 * size],
        ]
        assert are_refused


def resuming(rank: int, size: int, value: Any) -> str:
    session, _ = open_session(Group.connect())
    state = {"steps": value, "epochs": 0, "loops": 0, "batches": 0, "of_batches": None}
    said = refused(lambda: session.load_state_dict(state if rank == 0 else {}))
    said += refused(lambda: session.epochs(2.5))  # type: ignore[arg-type]
    assert len(list(session.epochs(np.int64(2)))) == 2  # type: ignore[arg-type]
    steps = int(session.steps)
    session.close()
    return f"{steps} {said}"


def test_counts_of_a_checkpoint_may_be_of_any_library(rank_pool: RankPool) -> None:
    whole = "session.epochs: '2.5': hand over a whole number"
    for value in (np.int64(3), torch.tensor(3)):
        assert rank_pool.run_in_process_group(2, resuming, value) == [f"3 {whole}"] * 2
    assert (
        rank_pool.run_in_process_group(2, resuming, np.float32(3))
        == [f"0 state.steps: '3.0': is a count, 0 or more{whole}"] * 2
    )
