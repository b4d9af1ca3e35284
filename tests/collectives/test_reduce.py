"""`Collective.reduce`: one buffer, blocking; the law, and a refusal on every rank where one is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from cases import FEW, GRADIENTS, MANY
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.in_process import Ranks
from torch import Tensor
from trimtab.collectives.base import Collective
from trimtab.plan.plan import Plan
from trimtab_api.catalogue import COLLECTIVES, SPARSE_COLLECTIVES

NUM_ELEMENTS = (1, 2, 3, 31, 127, 1009, 40_009)


@contextmanager
def ranks_of(collective: str, size: int) -> Iterator[list[Collective]]:
    """One scheme on each of so many ranks, which are threads."""
    ranks = Ranks(Plan.parse(collective if collective.startswith("dense") else f"0.01/{collective}"), size, 1)
    yield ranks.schemes
    ranks.close()


def reduce_on_all(schemes: Sequence[Collective], accs: Tensor, ratio: float, step: int = 0) -> list[Tensor | str]:
    """What ``reduce`` returns on each rank for its row of accs [N, n], which become the residuals, or raises."""

    def reduce(rank: int) -> Tensor | str:
        try:
            return schemes[rank].reduce(accs[rank], ratio, step=step)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(len(schemes)) as pool:
        return list(pool.map(reduce, range(len(schemes))))


def check(schemes: Sequence[Collective], accs: Tensor, ratio: float, step: int = 0) -> None:
    """The law, and the same bits everywhere."""
    size, before = len(schemes), accs.clone()
    update, *others = reduce_on_all(schemes, accs, ratio, step)
    assert isinstance(update, Tensor)
    assert all(isinstance(other, Tensor) and torch.equal(other, update) for other in others)
    missing = before.double().sum(0) - size * update.double() - accs.double().sum(0)
    rounding = 4 * size * (2**-24 * before.double().abs().sum(0) + 2**-149)
    assert (missing.abs() <= rounding).all()


@pytest.mark.parametrize("sizes", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_reduce_conserves_on_any_number_of_ranks(sizes: tuple[int, ...], data: st.DataObject) -> None:
    collective, size = data.draw(st.sampled_from(COLLECTIVES)), data.draw(st.sampled_from(sizes))
    n = data.draw(st.sampled_from(NUM_ELEMENTS))
    ratio = math.exp(data.draw(st.floats(-math.log(n), 0)))
    random = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    gradient = GRADIENTS[data.draw(st.sampled_from(sorted(GRADIENTS)))]
    with ranks_of(collective, size) as schemes:
        accs = gradient(torch.randn(size, n, generator=random))
        for step in range(2):
            check(schemes, accs, ratio, step)
            accs += gradient(torch.randn(size, n, generator=random))


@pytest.mark.parametrize("collective", SPARSE_COLLECTIVES)
def test_a_million_elements_and_their_residual_conserve(collective: str) -> None:
    accs = torch.randn(3, 1_000_003, generator=torch.Generator().manual_seed(1))
    accs[:, 200_000:300_000] *= 1e6
    with ranks_of(collective, 3) as schemes:
        check(schemes, accs, 1e-6)
        check(schemes, accs, 0.01, step=1)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_what_is_not_finite_is_refused_on_every_rank_and_leaves_no_trace(collective: str, value: float) -> None:
    random = torch.Generator().manual_seed(2)
    with ranks_of(collective, 3) as schemes:
        accs = torch.randn(3, 500, generator=random)
        reduce_on_all(schemes, accs, 0.05)
        carried = [scheme.state_dict() for scheme in schemes]
        accs += torch.randn(3, 500, generator=random)
        accs[1, 77] = value
        before = accs.clone()
        assert set(reduce_on_all(schemes, accs, 0.05, step=1)) == {
            "acc is not finite on rank 1; replace what is not, and retry"
        }
        assert torch.equal(accs.nan_to_num(nan=7.0), before.nan_to_num(nan=7.0))
        assert [scheme.state_dict() for scheme in schemes] == carried
        accs[1, 77] = 0.0
        check(schemes, accs, 0.05, step=1)
