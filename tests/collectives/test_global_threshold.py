"""Which sums are among the k largest of all ranks', told from counts alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trimtab.papers.ok_topk.global_threshold import histogram, shares_by_histogram, shares_by_threshold, split

MAGNITUDES = st.lists(st.floats(0, 2.0**100, width=32), max_size=60)

#: The lowest bin is that of denormals.
TINY = 2.0**-126


@given(ranks=st.lists(MAGNITUDES, min_size=1, max_size=5), k=st.integers(1, 80))
def test_histograms_find_the_k_largest_but_for_those_of_one_bin(ranks: list[list[float]], k: int) -> None:
    held = [torch.tensor(magnitudes) for magnitudes in ranks]
    shares = shares_by_histogram([histogram(each, k) for each in held], k)
    everything = torch.cat(held)
    assert shares.total == min(k, everything.numel())
    sent = [each.sort(descending=True).values[:share] for each, share in zip(held, shares.of_rank, strict=True)]
    assert all(len(one) == share for one, share in zip(sent, shares.of_rank, strict=True)), "no more than it has"
    if k < everything.numel():
        kth = everything.sort(descending=True).values[k - 1]
        assert all(one.numel() == 0 or one[-1] >= kth * (1 - 2**-4) - TINY for one in sent)
        assert kth * (1 - 2**-4) - TINY <= shares.threshold <= kth * (1 + 2**-4) + TINY


@given(counts=st.lists(st.integers(0, 50), min_size=1, max_size=6), share=st.floats(0, 1))
def test_a_total_is_split_in_proportion(counts: list[int], share: float) -> None:
    total = int(share * sum(counts))
    parts = split(total, counts)
    assert sum(parts) == total
    assert all(0 <= part <= count for part, count in zip(parts, counts, strict=True))


def test_a_threshold_that_too_many_or_too_few_reach_is_corrected() -> None:
    assert shares_by_threshold([30, 70], 2.0, k=100, most=125).threshold == 2.0
    many = shares_by_threshold([30, 270], 2.0, k=100, most=125)
    assert many.of_rank == (12, 113)
    assert many.threshold == pytest.approx(2.0 * 1.05)
    none = shares_by_threshold([0, 0], 2.0, k=100, most=125)
    assert none.of_rank == (0, 0)
    assert none.threshold == pytest.approx(2.0 / 1.05)
