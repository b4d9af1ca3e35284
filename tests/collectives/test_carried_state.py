"""What every scheme carries: saved and loaded it goes on as if never stopped, in another world nothing is lost."""

from __future__ import annotations

import io
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.in_process import Ranks
from torch import Tensor
from trimtab.plan.plan import Plan
from trimtab_api import catalogue
from trimtab_api.catalogue import COLLECTIVES

#: Every scheme, and the options of which it carries something else.
PLANS = (*COLLECTIVES, "spardl:teams=2", "spardl:teams=3", "exdyna:threshold=paper", "exdyna:threshold=scaled")
N = 3000


def plan_of(collective: str, ratio: float) -> Plan:
    return Plan.parse(collective) if collective.startswith("dense") else Plan(ratio, collective, "topk")


def stored(state: dict[str, Any]) -> dict[str, Any]:
    """The state as a file has it."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    read: dict[str, Any] = torch.load(file, weights_only=True)
    return read


def grads(size: int, step: int, seed: int) -> list[Tensor]:
    """Of layers unlike in size."""
    random = torch.Generator().manual_seed(1000 * seed + step)
    return list(torch.randn(size, N, generator=random) * torch.linspace(0, 3, N).exp())


@settings(max_examples=examples(60), deadline=None)
@given(
    collective=st.sampled_from(PLANS),
    size=st.integers(1, 6),
    other=st.integers(1, 6),
    before=st.integers(1, 8),
    ratio=st.sampled_from((0.001, 0.01, 0.1)),
    seed=st.integers(0, 100),
)
def test_saved_and_loaded_it_goes_on_as_if_never_stopped_and_in_another_world_nothing_is_lost(
    collective: str, size: int, other: int, before: int, ratio: float, seed: int
) -> None:
    if any(catalogue.rank_count_error(collective, world) for world in (size, other)):
        size = other = 6
    plan = plan_of(collective, ratio)
    through, resumed, elsewhere = (Ranks(plan, world, N) for world in (size, size, other))
    for step in range(before):
        through.exchange(grads(size, step, seed))
    state = stored(through.state_dict())
    resumed.load_state_dict(state)
    for step in range(before, before + 3):
        update, _ = through.exchange(grads(size, step, seed))
        again, _ = resumed.exchange(grads(size, step, seed))
        assert torch.equal(update, again)
    for one, two in zip(through.residuals, resumed.residuals, strict=True):
        assert torch.equal(one, two)
    assert through.state_dict()["schemes"] == resumed.state_dict()["schemes"]

    # What rank r held back goes to rank r mod M, times M / N, for an update is a mean.
    residuals = torch.zeros(other, N)
    for rank, residual in enumerate(state["residuals"]):
        residuals[rank % other] += other / size * residual
    schemes = [state["schemes"][rank % size] for rank in range(other)]
    elsewhere.load_state_dict({"step": state["step"], "residuals": list(residuals), "schemes": schemes})
    pending_step = torch.stack(state["residuals"]).double().mean(0)
    magnitude = torch.stack(state["residuals"]).double().abs().mean(0)
    for step in range(before, before + 3):
        new = torch.stack(grads(other, step, seed)).double()
        pending_step, magnitude = pending_step + new.mean(0), magnitude + new.abs().mean(0)
        update, _ = elsewhere.exchange(grads(other, step, seed))
        pending_step -= update.double()
    left = pending_step - torch.stack(elsewhere.residuals).double().mean(0)
    assert (left.abs() <= 16 * (size + other) * 2**-24 * magnitude).all()
    for ranks in (through, resumed, elsewhere):
        ranks.close()
