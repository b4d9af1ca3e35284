"""Trials leave no trace, however the script's loop goes: other sparsifiers, accumulated gradients, an early end."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.random_training import assert_same, loader, make_session, state
from kit.training.scripted_control import Script
from torch import nn
from trimtab.checkpoint.snapshot import Snapshot, TrainingState
from trimtab.control.messages import AdoptPlan, Message, TryPlans
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.session.session import Session
from trimtab.sparsifiers.near_k import EXACT_UP_TO

SEVERAL_BUFFERS = FusionPlan((0, 604))


def wide_network() -> nn.Module:
    """A buffer beyond `EXACT_UP_TO`, where thresholds are carried from step to step."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 300), nn.ReLU(), nn.Linear(300, 150), nn.ReLU(), nn.Linear(150, 4))
    assert network[2].weight.numel() > EXACT_UP_TO
    return network


def train(session: Session, model: nn.Module, steps: int, batches_a_step: int = 1, leave_after: int | None = None):
    """Take training steps, of several batches each; ``leave_after`` counts the loop's rounds, trials included."""
    taken = 0
    for rounds, (x, y) in enumerate(session.batches(loader()), 1):
        loss = nn.functional.cross_entropy(model(x), y) / batches_a_step
        if rounds % batches_a_step:
            with session.no_sync():
                loss.backward()
        else:
            loss.backward()
            was_trial = session.in_trial
            session.step(loss)
            taken += not was_trial
        if rounds == leave_after or taken == steps:
            break


def plan_of(name: str, sparsifier: str = "tracked") -> Plan:
    return replace(Plan.parse(name, SEVERAL_BUFFERS), sparsifier=sparsifier)


def message(*plans: Plan, iterations: int) -> TryPlans:
    return TryPlans(tuple(plans), iterations)


def begin(rank: int, plan: str, messages: dict[int, Message]):
    model = wide_network()
    script = Script(messages) if rank == 0 else None
    session, optimizer, scheduler = make_session(plan_of(plan), model, control_client=script)
    torch.manual_seed(rank)
    np.random.seed(rank)
    random.seed(rank)

    def now() -> tuple[dict[str, Any], dict[str, str]]:
        learned = repr(session.debug_state().schemes)
        return state(session, model, optimizer, scheduler), learned

    return model, session, now, script


def assert_no_trace(a: tuple[dict[str, Any], dict[str, str]], b: tuple[dict[str, Any], dict[str, str]]) -> None:
    """Training and what its sparsifiers learned are the same."""
    assert_same(a[0], b[0])
    assert a[1] == b[1]


def adopting_what_was_tried(rank: int, size: int, first: str, tried: Plan, trials: bool) -> tuple[Any, int]:
    messages: dict[int, Message] = {6: AdoptPlan(tried.with_version(1))}
    if trials:
        messages[3] = message(tried, plan_of("0.2/all-gather"), iterations=4)
    model, session, now, script = begin(rank, first, messages)
    train(session, model, steps=12)
    assert session.plan.name == tried.name
    result = now(), len(script.reports) if script else 0
    session.close()
    return result


@pytest.mark.parametrize(
    ("first", "tried"),
    [
        ("dense-ring", plan_of("0.01/all-gather")),
        ("dense-ring", plan_of("0.01/all-gather", "mstopk")),
        ("0.05/all-gather", plan_of("0.01/artopk-star-ring")),
        ("0.05/all-gather", plan_of("0.01/artopk-star-ring", "mstopk")),
    ],
    ids=["dense to tracked", "dense to mstopk", "tracked to another collective", "tracked to mstopk"],
)
def test_a_plan_adopted_after_its_trial_begins_as_if_never_tried(first: str, tried: Plan, rank_pool: RankPool) -> None:
    with_trials = rank_pool.run_in_process_group(2, adopting_what_was_tried, first, tried, True)
    without = rank_pool.run_in_process_group(2, adopting_what_was_tried, first, tried, False)
    assert with_trials[0][1] == 1, "the trials have run"
    for (a, _), (b, _) in zip(with_trials, without, strict=True):
        assert_no_trace(a, b)


def accumulating(rank: int, size: int, batches_a_step: int, trials: bool) -> tuple[Any, list[int]]:
    messages = {2: message(plan_of("0.01/all-gather"), plan_of("dense-ring"), iterations=3)} if trials else {}
    model, session, now, script = begin(rank, "0.05/all-gather", messages)
    train(session, model, steps=6, batches_a_step=batches_a_step)
    result = now(), [report.num_steps for reports in (script.reports if script else []) for report in reports]
    session.close()
    return result


@pytest.mark.parametrize(("batches_a_step", "measured"), [(1, [2, 2]), (2, [2, 2]), (5, [])])
def test_a_trial_counts_steps_where_a_step_takes_several_batches(
    batches_a_step: int, measured: list[int], rank_pool: RankPool
) -> None:
    """Of the five batches a step, an epoch of twenty leaves too few for a trial: none is run."""
    with_trials = rank_pool.run_in_process_group(2, accumulating, batches_a_step, True)
    without = rank_pool.run_in_process_group(2, accumulating, batches_a_step, False)
    assert with_trials[0][1] == measured
    for (a, _), (b, _) in zip(with_trials, without, strict=True):
        assert_no_trace(a, b)


def leaving(rank: int, size: int, rounds: int, trials: bool) -> tuple[Any, bool, int]:
    messages = {3: message(plan_of("0.01/artopk-star-ring"), plan_of("dense-ring"), iterations=4)} if trials else {}
    model, session, now, script = begin(rank, "0.05/all-gather", messages)
    train(session, model, steps=20, leave_after=rounds)
    assert not session.in_trial
    assert (session.steps, session.plan.ratio) == (4, 0.05), "the trials begin after the fourth step"
    if script and trials:
        assert [len(reports) for reports in script.reports] == [1 if rounds == 9 else 0], "what was measured is told"
    train(session, model, steps=5)
    result = now(), session.in_trial, session.steps
    session.close()
    return result


@pytest.mark.pattern("early stopping (`break`)", works="ends the loop, and a trial in it")
@pytest.mark.parametrize("rounds", [5, 6, 9], ids=["first batch", "second batch", "second candidate"])
def test_a_loop_that_is_left_in_a_trial_goes_on_from_before_it(rounds: int, rank_pool: RankPool) -> None:
    with_trials = rank_pool.run_in_process_group(2, leaving, rounds, True)
    without = rank_pool.run_in_process_group(2, leaving, 4, False)
    for a, b in zip(with_trials, without, strict=True):
        assert_no_trace(a[0], b[0])
        assert a[1:] == b[1:] == (False, 9)


def throwing_away(rank: int, size: int, trials: bool) -> tuple[Any, list[list[Any]]]:
    """A loop that steps four times and throws all else away, the steps of a trial among it."""
    messages = {3: message(plan_of("0.01/all-gather"), plan_of("dense-ring"), iterations=2)} if trials else {}
    model, session, now, script = begin(rank, "0.05/all-gather", messages)
    for x, y in itertools.islice(session.batches(loader()), 300):
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if session.in_trial or session.steps >= 4:
            continue
        session.step(loss)
    assert not session.in_trial, "the trial goes on for ever"
    result = now(), script.reports if script else []
    session.close()
    return result


def test_a_loop_that_steps_no_more_ends_the_trial_that_it_is_in(rank_pool: RankPool) -> None:
    with_trials = rank_pool.run_in_process_group(2, throwing_away, True)
    assert with_trials[0][1] == [[]]
    for (a, _), (b, _) in zip(with_trials, rank_pool.run_in_process_group(2, throwing_away, False), strict=True):
        assert_no_trace(a, b)


def test_a_buffer_that_has_grown_in_a_trial_is_what_it_was() -> None:
    model = nn.BatchNorm1d(3)
    model.register_buffer("longest", torch.arange(2.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    snapshot = Snapshot(TrainingState(model, optimizer, FlatBuffers(list(model.named_parameters())), list))
    before = {name: each.clone() for name, each in model.state_dict().items()}
    running = model.running_mean
    model.longest = torch.arange(5.0)
    model(torch.randn(4, 3))
    snapshot.restore()
    assert model.running_mean is running
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
