"""The arithmetic of the charts."""

import math

from hypothesis import given
from hypothesis import strategies as st
from trimtab.report.chart import MAX_POINTS, nice_step, scale_for, thin_out

values = st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=30)


@given(values, st.booleans())
def test_a_scale_keeps_order_and_holds_every_value(numbers: list[float], log: bool):
    scale = scale_for(numbers, log)
    places = [scale(number) for number in sorted(numbers)]
    assert places == sorted(places)
    assert all(0 <= place <= 1 for place in places)
    if max(numbers) > 1.001 * min(numbers):
        assert places[0] < places[-1]


@given(values, st.booleans())
def test_ticks_are_few_and_lie_on_the_axis(numbers: list[float], log: bool):
    scale = scale_for(numbers, log)
    ticks = scale.ticks()
    assert len(ticks) <= 20
    assert all(scale.low * 0.999 - 1e-9 <= tick <= scale.high * 1.001 for tick in ticks)


@given(st.floats(1e-9, 1e9))
def test_a_nice_step_is_a_little_more_than_asked(rough: float):
    step = nice_step(rough)
    assert 0.99 * rough <= step <= 2.6 * rough
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert any(math.isclose(mantissa, nice, rel_tol=1e-6) for nice in (1, 2, 5))


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(-5, 5)), min_size=1, max_size=2000).map(sorted))
def test_thinning_out_keeps_the_range_of_time_and_value(points):
    thin = thin_out(points)
    assert 1 <= len(thin) <= MAX_POINTS + 1
    assert points[0][0] <= thin[0][0] <= thin[-1][0] <= points[-1][0]
    assert min(v for _, v in points) <= min(v for _, v in thin)
