"""Indices on the wire: nothing lost, and how few bytes they take."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trimtab.wire import index_code


@settings(deadline=None)
@given(st.sets(st.integers(0, 2**31 - 1) | st.integers(0, 2000), max_size=300).map(sorted))
def test_what_is_decoded_is_what_was_encoded(indices: list[int]) -> None:
    coded = index_code.encode(torch.tensor(indices, dtype=torch.int32))
    assert coded.numel() % 4 == 0
    assert coded.numel() <= 8 + 4 * len(indices)
    assert index_code.count_of(coded) == len(indices)
    assert index_code.decode(coded).tolist() == indices
    assert index_code.decode(coded).dtype == torch.int32


@pytest.mark.parametrize("gap", [0, 1, 254, 255, 256, 510, 65534, 65535, 65536, 131070])
def test_gaps_at_the_edge_of_a_unit(gap: int) -> None:
    indices = (torch.arange(50) * (gap + 1) + gap).to(torch.int32)
    assert torch.equal(index_code.decode(index_code.encode(indices)), indices)


@pytest.mark.parametrize(("ratio", "bytes_each"), [(0.1, 1.01), (0.01, 1.1), (0.001, 2.01)])
def test_indices_of_a_random_selection_take_few_bytes(ratio: float, bytes_each: float) -> None:
    chosen = torch.rand(3_000_000, generator=torch.Generator().manual_seed(1)) < ratio
    indices = chosen.nonzero().flatten().to(torch.int32)
    assert index_code.encode(indices).numel() <= bytes_each * indices.numel() + 12


@pytest.mark.parametrize("indices", [[3, 2], [5, 5], [-1, 4]])
def test_indices_that_are_not_ascending_are_refused(indices: list[int]) -> None:
    with pytest.raises(ValueError, match="unique and ascending"):
        index_code.encode(torch.tensor(indices, dtype=torch.int32))


@pytest.mark.parametrize(("gap", "num_bytes"), [(254, 4), (255, 6), (65534, 6), (65535, 12), (65536, 12)])
def test_a_gap_of_a_whole_unit_takes_two(gap: int, num_bytes: int) -> None:
    indices = (torch.arange(3) * (gap + 1) + gap).to(torch.int32)
    assert index_code.encode(indices).numel() == 8 + -(-num_bytes // 4) * 4
