"""How long a step takes when buffers cross the network while backward still runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.control import overlap


def test_one_buffer_hides_nothing_and_many_hide_what_fits():
    assert overlap.step_seconds(0.3, [1.0], [0.2]) == pytest.approx(0.5)
    assert overlap.step_seconds(0.3, [0.5, 0.5], [0.1, 0.1]) == pytest.approx(0.4)


@given(
    compute=st.floats(0.001, 10),
    exchanges=st.lists(st.floats(0, 10), min_size=1, max_size=8),
)
def test_a_step_takes_at_least_its_parts_and_at_most_their_sum(compute, exchanges):
    shares = [1 / len(exchanges)] * len(exchanges)
    seconds = overlap.step_seconds(compute, shares, exchanges)
    assert seconds >= max(compute, sum(exchanges)) - 1e-9
    assert seconds <= compute + sum(exchanges) + 1e-9
