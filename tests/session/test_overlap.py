"""Several buffers in one step: they cross while backward runs, however a loop clears its gradients."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from kit.fusion_plans import cut_before
from kit.rank_pool import RankPool
from kit.training.engines import engine_of
from torch import Tensor, nn
from trimtab.engine.gradients.flat_buffers import LEND_FROM
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group

#: Seconds for an exchange on loopback, at the worst.
DEADLINE = 30.0
PLANS = ("0.1/all-gather", "0.1/artopk-star-ring", "0.1/artopk-var-tree", "dense")


def attach(plan: str, widths: tuple[int, ...]) -> tuple[Session, nn.Sequential, torch.optim.Optimizer]:
    """One layer a buffer; backward goes through them from the last to the first."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(before, after, bias=False) for before, after in pairwise(widths)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    parsed = Plan.parse(plan, cut_before(model, 0, 1, 2))
    session = Session(model, optimizer, group=Group.connect(), plan=parsed, recorder=Recorder(None))
    return session, model, optimizer


def wait_inside_backward(rank: int, size: int, plan: str) -> list[int]:
    """How many buffers had crossed when backward came to the second layer, and to the first."""
    session, model, _ = attach(plan, (8, 8, 8, 8))
    crossed: list[int] = []

    def wait_for(count: int) -> Callable[[Tensor], None]:
        def hook(_: Tensor) -> None:
            pending_exchanges = engine_of(session).exchanger.pending_exchanges
            crossed.append(
                len([pending_exchange.handle.wait(DEADLINE) for pending_exchange in pending_exchanges[:count]])
            )

        return hook

    first = model[0](torch.randn(4, 8))
    second = model[1](first)
    first.register_hook(wait_for(2))
    second.register_hook(wait_for(1))
    model[2](second).square().mean().backward()
    session.step()
    session.close()
    return crossed


@pytest.mark.parametrize("plan", PLANS)
def test_a_buffer_crosses_while_backward_computes_the_next(plan: str, rank_pool: RankPool) -> None:
    """Backward stands still inside until the buffers before have arrived: exchanged afterwards, they never would."""
    assert rank_pool.run_in_process_group(3, wait_inside_backward, plan) == [[1, 2]] * 3


def train(rank: int, size: int, plan: str, widths: tuple[int, ...], loop: str) -> Tensor:
    """Weights after five steps of a loop that does this with the gradients it does not want."""
    session, model, optimizer = attach(plan, widths)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(5):
        batch = torch.randn(4, widths[0], generator=generator)
        if loop == "accumulates, and thinks better of it":
            with session.no_sync():
                model(batch + 1).square().mean().backward()
            optimizer.zero_grad(set_to_none=False)
        elif loop == "zeroes in place":
            optimizer.zero_grad(set_to_none=False)
        elif loop == "sets to none":
            optimizer.zero_grad(set_to_none=True)
        model(batch).square().mean().backward()
        session.step()
    weights = torch.cat([parameter.detach().reshape(-1).clone() for parameter in model.parameters()])
    session.close()
    return weights


@pytest.mark.parametrize("plan", ["0.1/all-gather", "dense"])
@pytest.mark.parametrize(
    "widths", [(16, 16, 16, 16), (370, 400, 16, 16)], ids=["copied", "read where autograd left it"]
)
@pytest.mark.parametrize("loop", ["zeroes in place", "sets to none", "accumulates, and thinks better of it"])
def test_how_a_loop_clears_its_gradients_changes_no_bit(
    loop: str, widths: tuple[int, ...], plan: str, rank_pool: RankPool
) -> None:
    assert (widths[0] * widths[1] >= LEND_FROM) == (widths[0] == 370)
    left_alone = rank_pool.run_in_process_group(3, train, plan, widths, "leaves them alone")
    cleared = rank_pool.run_in_process_group(3, train, plan, widths, loop)
    for weights in (*left_alone, *cleared):
        assert torch.equal(weights, left_alone[0])
