"""What optimizers keep when local steps give way to gradients: then it is the same on all ranks, whatever it is."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from kit.rank_pool import RankError, RankPool
from kit.training.local_steps import plan_of
from kit.training.regression import backward, model_of
from kit.training.scripted_control import AdoptsAt, Heard
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor, nn
from trimtab.engine.local_sgd.optimizer_state_sync import share_state
from trimtab.plan.plan import Plan
from trimtab.transport.group import Group


class Keeping(torch.optim.Optimizer):
    """Keeps its momentum, and what else it goes by, as others do that are found in the wild."""

    def __init__(self, parameters: Iterable[Tensor], how: str) -> None:
        super().__init__(parameters, {"lr": 0.02, "betas": (0.9, 0.999), "d": 0.01})
        self._how = how

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            learning = [each for each in group["params"] if each.grad is not None]
            if self._how == "group":  # as Prodigy and D-Adaptation keep the size of their steps
                group["d"] = max(group["d"], 0.01 * sum(float(each.grad.norm()) for each in learning))
            for each in learning:
                each.sub_(getattr(self, f"_{self._how}")(self.state[each], each.grad, group))

    def _group(self, state: dict[str, Any], grad: Tensor, group: dict[str, Any]) -> Tensor:
        return group["d"] * grad

    def _count(self, state: dict[str, Any], grad: Tensor, group: dict[str, Any]) -> Tensor:
        state["step"] = state.get("step", 0) + 1  # of Python's own, as in many Adams
        return group["lr"] / (1 + 1 / state["step"]) * grad

    def _list(self, state: dict[str, Any], grad: Tensor, group: dict[str, Any]) -> Tensor:
        (momentum,) = state.setdefault("Q", [torch.zeros_like(grad)])  # as SOAP keeps its bases
        return group["lr"] * momentum.mul_(0.9).add_(grad)

    def _codes(self, state: dict[str, Any], grad: Tensor, group: dict[str, Any]) -> Tensor:
        if not state:  # as Adam of eight bits
            state["codes"], state["absmax"] = torch.full(grad.shape, 128, dtype=torch.uint8), torch.zeros(())
        momentum = 0.9 * (state["codes"].float() - 128) / 127 * state["absmax"] + grad
        state["absmax"].copy_(momentum.abs().max())
        state["codes"].copy_((momentum / state["absmax"] * 127 + 128).round())
        return group["lr"] * momentum

    def _object(self, state: dict[str, Any], grad: Tensor, group: dict[str, Any]) -> Tensor:
        state["projector"] = Projector()  # as GaLore keeps what a gradient's rank is reduced by
        return group["lr"] * grad


class Projector:
    """Of some class that nobody else knows."""


def to_gradients(rank: int, size: int, how: str) -> list[tuple[str, Tensor]]:
    model = model_of()
    optimizer = Keeping(model.parameters(), how)
    options = {"control_client": AdoptsAt({2: Plan.parse("dense")})} if rank == 0 else {}
    session = attach(model, optimizer, plan_of("0.3/all-gather", 2), **options)
    seen = []
    for number in range(10):
        backward(model, number, rank)
        if number == 1 and rank == 1:
            model[0].weight.grad[0, 0] = float("nan")  # a step less
        session.step()
        seen.append((session.plan.source, weights_of(model)))
    session.close()
    return seen


@pytest.mark.parametrize("how", ["count", "group", "list", "codes"])
def test_ranks_stay_alike_under_gradients_whatever_their_optimizer_keeps(rank_pool: RankPool, how: str) -> None:
    """Of other state than float tensors in its first level each rank once kept its own, and ranks parted."""
    first, other = rank_pool.run_in_process_group(2, to_gradients, how)
    assert [source for source, _ in first[-4:]] == ["gradient"] * 4
    for (source, weights), (_, its) in zip(first, other, strict=True):
        assert source != "gradient" or torch.equal(weights, its)


def kept_by(rank: int) -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
    """An optimizer of four parameters: of moments, of more than these, without state on rank 1, of none."""
    parameters = [nn.Parameter(torch.zeros(2)) for _ in range(4)]
    optimizer = torch.optim.SGD([{"params": parameters[:2]}, {"params": parameters[2:]}], lr=0.5)
    moments, more, sometimes, _ = parameters
    number = float(rank)
    optimizer.state[moments] = {"step": 2 + 3 * rank, "m": torch.full((2,), number), "unused": None}
    optimizer.state[more] = {
        "m": torch.full((2,), number),
        "nested": {"bases": (torch.full((2, 1), number, dtype=torch.float64), 7 * rank), "done": rank == 0},
        "mask": torch.tensor([rank == 0]),
    }
    if rank != 1:
        optimizer.state[sometimes] = {"m": torch.ones(2)}
    optimizer.param_groups[0]["lr"] = 0.1 * (rank + 1)
    optimizer.param_groups[1].update(lr=torch.tensor(number), betas=(rank, 0.5), how=print)
    return parameters, optimizer


def shared(group: Group) -> tuple[list[Any], list[Any], int]:
    parameters, optimizer = kept_by(group.rank)
    before = group.num_messages
    share_state(["a", "b", "c", "d"], parameters, [optimizer], group)
    num_messages = group.num_messages - before
    groups = [{key: value for key, value in each.items() if key != "params"} for each in optimizer.param_groups]
    return [optimizer.state.get(each) for each in parameters], [groups[0]["lr"], groups[1]["betas"]], num_messages


def test_moments_are_averaged_and_all_else_is_rank_0_s(rank_pool: RankPool) -> None:
    results = rank_pool.run(3, shared)
    for (moments, more, sometimes, none), (rate, betas), _ in results:
        assert moments["step"] == 5
        assert isinstance(moments["step"], int)
        assert moments["m"].tolist() == [1, 1]
        assert more["m"].tolist() == [0, 0], "it belongs to what lies beside it"
        assert more["nested"]["bases"][0].tolist() == [[0], [0]]
        assert more["nested"]["bases"][1] == 0
        assert more["nested"]["done"] is True
        assert more["mask"].tolist() == [True]
        assert sometimes is None, "it begins anew where some rank has none"
        assert none is None
        assert (rate, betas) == (0.1, (0, 0.5))


def unlike(group: Group, spoil: Callable[[Any, int], None]) -> None:
    parameters, optimizer = kept_by(group.rank)
    spoil(optimizer, group.rank)
    share_state(["a", "b", "c", "d"], parameters, [optimizer], group)


def another_form(optimizer: torch.optim.Optimizer, rank: int) -> None:
    more = optimizer.param_groups[0]["params"][1]
    if rank == 1:
        optimizer.state[more]["mask"] = torch.zeros(3, dtype=torch.bool)


def an_object(optimizer: torch.optim.Optimizer, rank: int) -> None:
    if rank == 1:
        optimizer.state[optimizer.param_groups[0]["params"][1]]["projector"] = object()


def another_group(optimizer: torch.optim.Optimizer, rank: int) -> None:
    if rank == 1:
        optimizer.param_groups[0]["extra"] = 1.0


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (another_form, "optimizer: 'SGD': rank 1 holds other things than rank 0 in the state of b"),
        (an_object, "of rank 1: SGD, b.projector: 'object': is no number, tensor"),
        (another_group, "optimizer: 'SGD': rank 1 holds other things than rank 0 in param_groups"),
    ],
)
def test_every_rank_says_whose_state_cannot_be_taken_over(
    rank_pool: RankPool, spoil: Callable[[Any, int], None], says: str
) -> None:
    with pytest.raises(RankError) as raised:
        rank_pool.run(2, unlike, spoil)
    assert says in raised.value.message


def plain(group: Group) -> tuple[int, int]:
    """Messages and the bytes of the floats alone."""
    parameters = [nn.Parameter(torch.zeros(1000)) for _ in range(3)]
    optimizer = torch.optim.AdamW(parameters, lr=0.1)
    for each in parameters:
        each.grad = torch.full_like(each, float(group.rank))
    optimizer.step()
    before = group.num_messages, group.num_bytes
    share_state(["a", "b", "c"], parameters, [optimizer], group)
    return group.num_messages - before[0], group.num_bytes - before[1]


def test_plain_moments_cost_one_all_gather_of_their_forms_and_a_ring(rank_pool: RankPool) -> None:
    for num_messages, num_bytes in rank_pool.run(2, plain):
        assert num_messages == 1 + 2
        assert num_bytes < 4 * 3 * 2001 + 1000


def loops_heard(rank: int, size: int, how: str, offers_rounds: bool) -> tuple[list[float], str]:
    """What the controller hears of a loop of four steps, and what people do."""
    model, heard = model_of(), Heard()
    heard.offers_rounds = offers_rounds
    options = {"control_client": heard} if rank == 0 else {}
    with contextlib.redirect_stderr(io.StringIO()) as said:
        session = attach(model, Keeping(model.parameters(), how), Plan.parse("dense"), **options)
        for number in session.batches(range(4), sharded=True):
            backward(model, number, rank)
            session.step()
        session.close()
    return heard.loops, said.getvalue()


def test_no_local_steps_are_offered_where_no_way_leads_back_from_them(rank_pool: RankPool) -> None:
    """Once a controller chose them for such an optimizer, and the job ended where it went back to gradients."""
    loops, said = rank_pool.run_in_process_group(2, loops_heard, "object", True)[0]
    assert set(loops) == {0}
    assert said.count("no local steps are chosen, for what the optimizer keeps: Keeping, 2.bias.projector: ") == 1
    for how, offers_rounds in (("list", True), ("object", False)):
        loops, said = rank_pool.run_in_process_group(2, loops_heard, how, offers_rounds)[0]
        assert set(loops) == {4}
        assert "no local steps" not in said, "nor where none were offered"
