"""Steps that were dropped are counted and shown with their rank and parameter; a job that drops most of them fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from kit.rank_pool import RankPool
from torch import nn
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.run_files.steps import DroppedSteps, LeftOutSteps, Step
from trimtab.session.dropped_steps import DropLimit, culprits
from trimtab.session.session import Session
from trimtab.transport.group import Group
from trimtab_api.errors import UserError


def training(rank: int, size: int, plan: str, every: int, folder: str) -> tuple[int, str]:
    """Train with a gradient that is no number on rank 1, in every so many steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    recorder = Recorder(Path(folder) if rank == 0 else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    session = Session(model, optimizer, group=Group.connect(), plan=Plan.parse(plan), recorder=recorder)
    try:
        for step in range(24):
            scale = float("nan") if rank == 1 and step % every == 0 else 1.0
            inputs = torch.ones(2, 4)
            (model[1](model[0](inputs).detach() * scale).square().mean() + model[0](inputs).mean()).backward()
            session.step()
    except UserError as error:
        return int(session.steps), str(error)
    finally:
        session.close()
    return int(session.steps), ""


@pytest.mark.pattern(
    "gradients that are not finite in most steps",
    refused="`39 of the last 50 steps were dropped, ...`",
)
@pytest.mark.parametrize("plan", ["dense", "0.25/all-gather"])
def test_a_job_that_drops_most_of_its_steps_fails_with_the_rank_and_the_parameter(
    plan: str, tmp_path: Path, rank_pool: RankPool
) -> None:
    first, second = rank_pool.run_in_process_group(2, training, plan, 1, str(tmp_path))
    assert first == second
    assert first[0] == 10
    assert "10 of the last 10 steps were dropped" in first[1]
    assert "rank 1: 1.bias, 1.weight" in first[1]
    assert "rank 0:" not in first[1]


def test_steps_that_are_dropped_at_times_are_recorded_with_their_cause(tmp_path: Path, rank_pool: RankPool) -> None:
    for steps, error in rank_pool.run_in_process_group(2, training, "dense", 3, str(tmp_path)):
        assert (steps, error) == (24, "")
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    dropped = DroppedSteps(Step.from_json(line) for line in lines)
    assert str(dropped).startswith(
        "8 of 24 steps were dropped, since a gradient was not finite (rank 1: 1.bias, 1.weight)"
    )


def leaving_out(rank: int, size: int, folder: str) -> None:
    """Train in rounds of 4 local steps, of which rank 1 leaves out every third by itself."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    recorder = Recorder(Path(folder) if rank == 0 else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    plan = Plan.parse("dense/source=update:steps=4")
    session = Session(model, optimizer, group=Group.connect(), plan=plan, recorder=recorder)
    for step in range(24):
        (model(torch.ones(2, 4)).mean() * (float("nan") if rank == 1 and step % 3 == 1 else 1.0)).backward()
        session.step()
    session.close()


def test_local_steps_that_another_rank_left_out_by_itself_are_in_the_records(
    tmp_path: Path, rank_pool: RankPool
) -> None:
    rank_pool.run_in_process_group(2, leaving_out, str(tmp_path))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = [Step.from_json(line) for line in lines if "event" not in line]
    told = [LeftOutSteps.from_json(line) for line in lines if line.get("event") == "left out"]
    assert str(DroppedSteps(steps, told)) == (
        "8 local steps were left out by their rank alone, since its gradient was not finite (rank 1: bias, weight)"
    )


def test_a_scaler_that_looks_for_its_scale_may_drop_as_many_as_it_needs() -> None:
    limit = DropLimit()
    for _ in range(100):
        limit.add(dropped=True, by="rank 0: w", is_scaling=True)
    for _ in range(25):
        limit.add(dropped=True, by="rank 1: a", is_scaling=False)
    with pytest.raises(UserError, match=r"26 of the last 50 steps were dropped.*\(rank 1: b\)"):
        limit.add(dropped=True, by="rank 1: b", is_scaling=False)


def test_culprits_are_named_by_rank() -> None:
    assert culprits([[], ["a", "b", "c", "d"], ["e"]]) == "rank 1: a, b, c and others; rank 2: e"
    assert culprits([[], []]) == ""
