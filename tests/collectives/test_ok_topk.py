"""Ok-Topk over steps: its threshold and regions, what they cost, and what dropping, saving and re-planning leave."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from on_ranks import Member, on_ranks, run
from torch import Tensor
from trimtab import collectives, sparsifiers
from trimtab.papers.ok_topk.ok_topk import ESTIMATE_EVERY, MOST_SENT, OkTopk
from trimtab_api.catalogue import costs

N, K = 6000, 120
#: Buckets before and after a change of plan.
BUCKETS, OTHER_BUCKETS = ((0, 4000), (4000, N)), ((0, 1000), (1000, 4000), (4000, N))


@dataclass(frozen=True)
class Step:
    """What one exchange brought on one rank."""

    acc: Tensor
    update: Tensor
    residual: Tensor
    num_bytes: int
    num_messages: int


def steps(member: Member, num_steps: int, slope: float, dropped: tuple[int, ...] = (), saved_at: int | None = None):
    """Train on noise that grows with the index, by error feedback; the scheme is saved and made anew at one step."""
    scheme = member.make("ok-topk")
    random = torch.Generator().manual_seed(member.rank)
    scale, residual, done = torch.linspace(0, slope, N).exp(), torch.zeros(N), []
    for step in range(num_steps):
        if step == saved_at:
            state = scheme.state_dict()
            scheme = member.make("ok-topk")
            scheme.load_state_dict(state)
        taken = exchange(scheme, torch.randn(N, generator=random) * scale, residual, (0, N), K, step)
        if step in dropped:
            scheme.discard()
            exchange(scheme, torch.randn(N, generator=torch.Generator().manual_seed(7)), residual, (0, N), K, step)
            scheme.discard()
            continue
        scheme.commit()
        residual = taken.residual
        done.append(taken)
    return done, scheme.state_dict()


def exchange(scheme, grad: Tensor, residual: Tensor, span: tuple[int, int], k: int, step: int) -> Step:
    next_residual, out = torch.empty_like(grad), torch.empty_like(grad)
    exchange = collectives.Exchange(grad, residual, next_residual, out, (0, grad.numel()), (k,), step, start=span[0])
    exchanged = run(scheme, exchange, sparsifiers.create("topk"))
    return Step(grad + residual, out, next_residual, exchanged.num_bytes, exchanged.num_messages)


@pytest.mark.parametrize("size", [2, 4, 6, 8])
def test_every_step_conserves_and_stays_within_its_bytes_and_messages(size: int) -> None:
    ranks = [done for done, _ in on_ranks(size, steps, ESTIMATE_EVERY + 3, 2.0)]
    ends = costs.ok_topk_range(4 * N, K / N, size)
    for number, step in enumerate(zip(*ranks, strict=True)):
        accs = torch.stack([rank.acc for rank in step]).double().sum(0)
        after = size * step[0].update.double() + torch.stack([rank.residual for rank in step]).double().sum(0)
        bound = 4 * size * 2**-24 * torch.stack([rank.acc for rank in step]).double().abs().sum(0)
        assert ((accs - after).abs() <= bound).all(), f"conservation at step {number}"
        sent = int((step[0].update != 0).sum())
        assert sent <= MOST_SENT * K
        if number % ESTIMATE_EVERY == 0:
            assert sent == min(K, size * K), "an estimate finds exactly k"
        assert sent > K / 2, "the threshold keeps up"
        for rank in step:
            assert ends.least.messages <= rank.num_messages <= ends.most.messages
            # Lengths, counts and first indices: 24 bytes for each block that a rank sends on.
            assert rank.num_bytes <= ends.most.bytes + 24 * 3 * (size - 1)


def test_regions_come_to_hold_as_much_as_each_other() -> None:
    size = 4
    (done, state), *_ = on_ranks(size, steps, 3, 6.0)
    ((*_, bounds),) = state["ranges"]
    assert bounds[1] > 3 * N // size, "the first region grows where there is little to send"
    held = [int((done[-1].update[low:high] != 0).sum()) for low, high in itertools.pairwise(bounds)]
    assert max(held) < 2 * sum(held) / size
    even = [int((done[-1].update[i * N // size : (i + 1) * N // size] != 0).sum()) for i in range(size)]
    assert max(even) > 3 * sum(even) / size, "which regions of the same length would not"


def test_what_lies_in_one_region_is_passed_on_before_it_is_gathered() -> None:
    for done, _ in on_ranks(4, steps, 1, 50.0):
        assert done[0].num_messages == costs.ok_topk_range(4 * N, K / N, 4).most.messages


def test_ranks_agree_on_the_state_and_dropped_and_saved_steps_leave_no_trace() -> None:
    plain = on_ranks(3, steps, 6, 2.0)
    assert all(state == plain[0][1] for _, state in plain)
    again = on_ranks(3, steps, 6, 2.0, (), 4)
    for (done, state), (others, other) in zip(plain, again, strict=True):
        assert state == other
        assert all(torch.equal(one.update, two.update) for one, two in zip(done, others, strict=True))
    for done, state in on_ranks(3, steps, 6, 2.0, (1, 3)):
        assert len(done) == 4
        assert state["ranges"][0][4] == 4, "its age counts the steps that were kept"


def replan(member: Member, old, new) -> tuple[dict[str, Any], dict[str, Any], list[Step]]:
    scheme = member.make("ok-topk")
    assert isinstance(scheme, OkTopk)
    random = torch.Generator().manual_seed(member.rank)
    grad = torch.randn(N, generator=random) * torch.linspace(0, 6, N).exp()

    def exchange_all(spans) -> list[Step]:
        taken = [
            exchange(scheme, grad[low:high].clone(), torch.zeros(high - low), (low, high), (high - low) // 50, 0)
            for low, high in spans
        ]
        scheme.commit()
        return taken

    for _ in range(2):
        exchange_all(old)
    before = scheme.state_dict()
    scheme.rebucket(old, new)
    after = scheme.state_dict()
    return before, after, exchange_all(new)


@pytest.mark.parametrize(("old", "new"), [(BUCKETS, OTHER_BUCKETS), (OTHER_BUCKETS, BUCKETS)])
def test_a_change_of_buckets_keeps_what_is_known(old, new) -> None:
    ranks = on_ranks(3, replan, old, new)
    before, after, _ = ranks[0]
    states = {(first, length): rest for first, length, *rest in after["ranges"]}
    assert set(states) == {(low, high - low) for low, high in new}
    for first, length, *rest in before["ranges"]:
        if (first, length) in states:
            assert states[first, length] == rest, "the buffer is the same"
    for (_, length), (_, _, _, bounds) in states.items():
        assert bounds == sorted(bounds)
        assert (bounds[0], bounds[-1]) == (0, length)
        assert bounds[1] >= length // 3, "regions follow what was selected, which grows with the index"
    for taken in zip(*(rank[2] for rank in ranks), strict=True):
        accs = torch.stack([one.acc for one in taken]).double()
        after_all = 3 * taken[0].update.double() + torch.stack([one.residual for one in taken]).double().sum(0)
        assert ((accs.sum(0) - after_all).abs() <= 12 * 2**-24 * accs.abs().sum(0)).all()


def test_what_another_number_of_ranks_has_left_is_begun_anew() -> None:
    (_, state), *_ = on_ranks(3, steps, 2, 2.0)
    assert all(left == {"ranges": []} for left in on_ranks(4, loaded, state))


def loaded(member: Member, state: dict[str, Any]) -> dict[str, Any]:
    scheme = member.make("ok-topk")
    scheme.load_state_dict(state)
    return scheme.state_dict()
