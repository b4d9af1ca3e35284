"""A run that goes on from a script's own checkpoint sees the epochs, batches and steps that are left, once each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.random_training import THREE_BUFFERS, make_session, network, trials_message
from kit.training.scripted_control import Script
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trimtab.plan.plan import Plan
from trimtab.session.attach import attach
from trimtab.session.session import Session
from trimtab_api.errors import UserError

EPOCHS, BATCHES = 3, 10
DATA = TensorDataset(torch.arange(2 * 2 * BATCHES), torch.randn(2 * 2 * BATCHES, 8))


class StoppedError(Exception):
    """The run is killed here."""


def joined(model: nn.Module, messages: dict[int, dict[str, Any]], rank: int) -> Session:
    client = Script(messages) if rank == 0 else None
    return make_session(Plan.parse("0.1/artopk-star-ring", THREE_BUFFERS), model, control_client=client)[0]


def train(session: Session, model: nn.Module, saves: str, stop: int) -> tuple[list[Any], dict[str, Any]]:
    """(epoch, step, samples) of each step, and the state that was kept last before the run was stopped."""
    seen: list[Any] = []
    state: dict[str, Any] = {}
    loader = DataLoader(DATA, 2, shuffle=True)
    try:
        for epoch in session.epochs(EPOCHS):
            for indices, inputs in session.batches(loader):
                step = int(session.steps)
                model(inputs).square().mean().backward()
                session.step()
                if not session.in_trial:
                    seen.append((epoch, step, indices.tolist()))
                if saves == "in the epoch":
                    state = session.state_dict()
                    if session.steps >= stop:
                        raise StoppedError
            list(session.batches([0, 1, 2, 3]))  # as a validation
            if saves == "after it":
                state = session.state_dict()
                if session.steps >= stop:
                    raise StoppedError
    except StoppedError:
        pass
    return seen, state


def interrupted(rank: int, size: int, saves: str, stop: int, trial: bool) -> Any:
    model = network()
    session = joined(model, {3: trials_message()} if trial else {}, rank)
    first, state = train(session, model, saves, stop)
    session.close()
    session = joined(model, {}, rank)
    session.load_state_dict(state if rank == 0 else {})
    second, _ = train(session, model, saves, EPOCHS * BATCHES)
    with pytest.raises(UserError, match="comes before the first batch and the first step"):
        session.load_state_dict(state)
    steps = session.steps
    session.close()
    return first, second, state, steps


@pytest.fixture(scope="module")
def whole(rank_pool: RankPool) -> list[Any]:
    """What each rank sees in a run that nothing stops."""
    return rank_pool.run_in_process_group(2, whole_run)


def whole_run(rank: int, size: int) -> list[Any]:
    model = network()
    session = joined(model, {}, rank)
    seen, _ = train(session, model, "never", EPOCHS * BATCHES)
    session.close()
    return seen


@pytest.mark.pattern(
    "resuming from the script's checkpoint",
    works="`session.state_dict()`; `session.epochs(n)` gives what is left",
)
@pytest.mark.parametrize(
    ("saves", "stop", "trial"),
    [("in the epoch", 14, False), ("in the epoch", 4, True), ("in the epoch", 10, False), ("after it", 20, False)],
)
def test_a_resumed_run_goes_on_where_it_was(
    saves: str, stop: int, trial: bool, whole: list[Any], rank_pool: RankPool
) -> None:
    for (first, second, state, steps), seen in zip(
        rank_pool.run_in_process_group(2, interrupted, saves, stop, trial), whole, strict=True
    ):
        assert len(first) == state["steps"] == stop
        assert first + second == seen
        assert steps == EPOCHS * BATCHES


def refused(rank: int, size: int, state: dict[str, Any]) -> str:
    session = joined(network(), {}, rank)
    try:
        session.load_state_dict(state)
    except UserError as error:
        return str(error)
    finally:
        session.close()
    return ""


@pytest.mark.parametrize(
    ("change", "said"),
    [({"steps": -1}, "state.steps: '-1': is a count"), ({"model": 0}, "state: is no state of a session")],
)
def test_what_is_no_state_is_refused_on_every_rank(change: dict[str, Any], said: str, rank_pool: RankPool) -> None:
    state = {"steps": 1, "epochs": 0, "loops": 0, "batches": 0, "of_batches": None}
    for message_of_rank in rank_pool.run_in_process_group(2, refused, state | change):
        assert message_of_rank.startswith(said)


def test_so_does_one_process_whose_loop_draws_its_batches_by_itself() -> None:
    seen, state = [], None
    for _ in range(2):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        session = attach(model, optimizer)
        if state is not None:
            session.load_state_dict(state)
        for epoch in session.epochs(3):
            model(DATA[:4][1]).sum().backward()
            optimizer.step()
            seen.append((epoch, int(session.steps)))
            state = session.state_dict()
            if len(seen) == 2:
                break
        session.close()
    assert seen == [(0, 1), (1, 2), (2, 3)]
