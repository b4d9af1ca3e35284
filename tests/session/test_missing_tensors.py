"""The share of tensors of which a step sends nothing."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trimtab.engine.exchange.outcome import missing_rate
from trimtab.engine.gradients.flat_buffers import BufferRange


def buffer(first: int, *segments: int) -> BufferRange:
    return BufferRange(first, first + len(segments) - 1, 0, segments[-1], segments)


def indices(*elements: int) -> torch.Tensor:
    return torch.tensor(elements, dtype=torch.int32)


def test_a_tensor_is_missing_where_no_element_of_it_is_sent() -> None:
    assert missing_rate([(buffer(0, 0, 4, 8, 12, 16), indices(3, 8, 11))]) == 0.5
    assert missing_rate([(buffer(0, 0, 4, 8), None)]) == 0
    assert missing_rate([]) is None


def test_one_that_lies_in_two_buffers_is_there_where_either_holds_some_of_it() -> None:
    cut_in_two = [(buffer(0, 0, 4, 8), indices(0)), (buffer(1, 0, 4, 8), indices(3))]
    assert missing_rate(cut_in_two) == pytest.approx(1 / 3)


@given(st.data())
def test_whatever_the_order_of_the_indices(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=8))
    segments = (0, *accumulate(sizes))
    sent = data.draw(st.lists(st.integers(0, segments[-1] - 1), unique=True, min_size=1))
    reached = {next(t for t, stop in enumerate(segments[1:]) if element < stop) for element in sent}
    expected = pytest.approx(1 - len(reached) / len(sizes))
    assert missing_rate([(buffer(0, *segments), indices(*sent))]) == expected
    assert missing_rate([(buffer(0, *segments), indices(*sorted(sent)))]) == expected
