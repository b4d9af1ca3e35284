"""Where k is chosen per tensor, elements of each tensor are sent, whatever the sizes of their gradients."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from kit.rank_threads import RankThreads
from trimtab import collectives
from trimtab.collectives import Exchange
from trimtab.plan.plan import FusionPlan, Plan, split_elements
from trimtab.sparsifiers.topk import TopK
from trimtab.transport.group import Group
from trimtab_api import catalogue
from trimtab_api.errors import UserError

#: Tensors of many sizes, whose gradients differ a thousandfold: by magnitude alone the small ones lose.
SIZES = (3, 400, 1, 900, 17, 17, 300, 2, 60, 700)
OFFSETS = tuple(int(each) for each in torch.tensor((0, *SIZES)).cumsum(0))
SCALES = (1e-3, 1.0, 1e-3, 1.0, 1e-2, 1e-3, 1.0, 1e-3, 1e-2, 1.0)
BY_TENSOR = [name for name in catalogue.SPARSE_COLLECTIVES if catalogue.collectives[name].selects_by_tensor] + [
    "spardl:teams=2",
    "spardl:teams=3",
]


def exchange_for(group: Group, scheme: str, num_steps: int) -> list[torch.Tensor]:
    """Each step's update on one rank."""
    random = torch.Generator().manual_seed(group.rank)
    scheme_of_rank, selector, residual = collectives.create(scheme, group), TopK(), torch.zeros(OFFSETS[-1])
    updates = []
    for step in range(num_steps):
        grad = torch.cat(
            [scale * torch.randn(size, generator=random) for size, scale in zip(SIZES, SCALES, strict=True)]
        )
        following, out = torch.empty_like(grad), torch.empty_like(grad)
        asked = Exchange(grad, residual, following, out, OFFSETS, split_elements(0.01, OFFSETS), step)
        scheme_of_rank.exchange(asked, selector).wait(60)
        scheme_of_rank.commit()
        residual = following
        updates.append(out)
    return updates


CASES = [
    (scheme, size) for scheme in BY_TENSOR for size in (2, 3, 4, 6) if not catalogue.rank_count_error(scheme, size)
]


@pytest.mark.parametrize(("scheme", "size"), CASES)
def test_each_tensor_has_an_element_in_each_update(scheme: str, size: int, rank_threads: RankThreads) -> None:
    for updates in rank_threads.run(size, exchange_for, scheme, 3):
        for update in updates:
            assert all(update[first:end].any() for first, end in pairwise(OFFSETS))


@pytest.mark.parametrize("scheme", ["exdyna", "arc-topk"])
def test_a_plan_of_a_collective_that_selects_otherwise_says_so(scheme: str) -> None:
    plan = Plan.parse(f"0.01/{scheme}/fusion=safusion")
    assert plan.fusion.selection == "behind"
    assert plan.name == f"0.01/{scheme}/fusion=safusion:selection=behind"
    given = Plan(0.01, scheme, fusion=FusionPlan((0, 10), planner="fixed:bytes=40:selection=ahead"))
    assert given.name == f"0.01/{scheme}/fusion=fixed:bytes=40"
    assert given.fusion.cuts == (0, 10)


@pytest.mark.parametrize("scheme", ["exdyna", "arc-topk"])
def test_a_plan_that_promises_k_of_each_tensor_is_refused(scheme: str) -> None:
    with pytest.raises(UserError, match=f"{scheme} cannot select in each tensor; write selection=behind"):
        Plan.parse(f"0.01/{scheme}/fusion=single:selection=ahead")
