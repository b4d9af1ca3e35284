"""A loop that draws its batches by itself hands its step to `Session.trials`, and trials leave no trace in it."""

from __future__ import annotations

import contextlib
import io
import random
from typing import Any

import numpy as np
import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.random_training import THREE_BUFFERS, assert_same, make_session, network, state, trials_message
from kit.training.scripted_control import Script
from torch import nn
from trimtab.plan.plan import Plan
from trimtab_api.errors import UserError

STEPS = 12
DATA = torch.randn(64, 8, generator=torch.Generator().manual_seed(3))


def trained(rank: int, size: int, style: str, trials: bool) -> tuple[dict[str, Any], list[float], list[int]]:
    """What a loop over batches drawn by ``torch.randint`` leaves, its losses, and the steps of each trial."""
    script = Script({3: trials_message(), 7: trials_message()} if trials else {}) if rank == 0 else None
    model = network()
    plan = Plan.parse("0.1/all-gather", THREE_BUFFERS)
    session, optimizer, scheduler = make_session(plan, model, control_client=script)
    torch.manual_seed(rank)
    np.random.seed(rank)
    random.seed(rank)
    losses = []

    def step() -> float:
        x = DATA[torch.randint(len(DATA), (8,))] + float(np.random.rand()) + random.random()
        loss = nn.functional.cross_entropy(model(x), (x.sum(dim=1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        if style == "session.step":
            session.step(loss)
        else:
            optimizer.step()
        return loss.item()

    for _ in range(STEPS):
        session.trials(step)
        losses.append(step())
    assert session.steps == STEPS
    counts = [report.num_steps for reports in script.reports for report in reports] if script else []
    result = state(session, model, optimizer, scheduler), losses, counts
    session.close()
    return result


@pytest.mark.pattern("batches drawn by the script (`get_batch`)", works="`session.trials(step)` for trials; else none")
@pytest.mark.parametrize("style", ["session.step", "optimizer.step"])
def test_trials_of_a_step_leave_everything_as_it_was_bit_for_bit(style: str, rank_pool: RankPool) -> None:
    without = rank_pool.run_in_process_group(2, trained, style, False)
    with_trials = rank_pool.run_in_process_group(2, trained, style, True)
    assert with_trials[0][2] == [3] * 6, "of four steps of each candidate the first is not counted"
    for (state_a, losses_a, _), (state_b, losses_b, _) in zip(without, with_trials, strict=True):
        assert losses_a == losses_b
        assert_same(state_a, state_b)


def in_a_loop_over_batches(rank: int, size: int) -> str:
    model = network()
    session, *_ = make_session(Plan.parse("dense", THREE_BUFFERS), model, control_client=None)
    try:
        for _ in session.batches([0, 1, 2, 3]):
            session.trials(lambda: None)
    except UserError as error:
        return str(error)
    finally:
        session.close()
    return ""


def test_it_is_refused_in_a_loop_that_runs_its_trials_by_itself(rank_pool: RankPool) -> None:
    for said in rank_pool.run_in_process_group(2, in_a_loop_over_batches):
        assert said.startswith("session.trials: is called in a loop over session.batches")


def what_is_said(rank: int, size: int, how: str) -> list[str]:
    model = network()
    client = Script({}) if rank == 0 else None
    session, optimizer, _ = make_session(Plan.parse("dense", THREE_BUFFERS), model, control_client=client)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        for _ in range(6) if how != "batches" else session.batches(list(range(2 * 6))):
            if how == "trials":
                session.trials(lambda: None)
            model(DATA[:8]).sum().backward()
            optimizer.step()
        session.close()
    return [line for line in said.getvalue().splitlines() if "trials are disabled" in line]


@pytest.mark.parametrize(("how", "times"), [("own", 1), ("batches", 0), ("trials", 0)])
def test_that_there_are_no_trials_is_said_once(how: str, times: int, rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, what_is_said, how)
    assert [each.startswith("trimtab: trials are disabled: the loop uses neither") for each in first] == [True] * times
    assert second == []


def reduced(rank: int, size: int) -> dict[str, Any]:
    session, *_ = make_session(Plan.parse("dense", THREE_BUFFERS), network(), control_client=None)
    values = torch.tensor([[0.1 + rank, 2.0 * rank]])
    try:
        session.barrier()
        found: dict[str, Any] = {op: session.all_reduce(values, op).tolist() for op in ("mean", "sum", "max", "min")}
        found["number"] = session.all_reduce(rank / 3)
        found["count"] = session.all_reduce(torch.tensor(rank + 2**40), "sum")
        found["main"] = session.is_main
        for wrong in ({"value": 1.0, "op": "median"}, {"value": torch.zeros(rank + 1)}):
            with pytest.raises(UserError) as refused:
                session.all_reduce(**wrong)
            found[next(reversed(wrong))] = str(refused.value)
        return found
    finally:
        session.close()


@pytest.mark.pattern("metrics over ranks", works="`session.all_reduce(value)`")
def test_a_metric_over_ranks_is_the_same_on_each(rank_pool: RankPool) -> None:
    outcomes = rank_pool.run_in_process_group(3, reduced)
    assert [each.pop("main") for each in outcomes] == [True, False, False]
    shapes = [each.pop("value") for each in outcomes]
    assert all("has another number of elements on some rank" in each for each in shapes)
    assert outcomes[0] == outcomes[1] == outcomes[2]
    found = outcomes[0]
    (mean,), (total,), (most,), (least,) = (found[op] for op in ("mean", "sum", "max", "min"))
    assert mean == pytest.approx([1.1, 2.0])
    assert total == pytest.approx([3.3, 6.0])
    assert (most, least) == (pytest.approx([2.1, 4.0]), pytest.approx([0.1, 0.0]))
    assert found["number"] == pytest.approx(1 / 3, rel=1e-15), "not rounded to float32"
    assert (found["count"].dtype, int(found["count"])) == (torch.int64, 3 * 2**40 + 3)
    assert found["op"].startswith("op: 'median': must be mean, sum, max or min")
