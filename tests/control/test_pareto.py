"""The plans that no other beats in everything, and those of them that are shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from trimtab.control.decision import Prediction
from trimtab.control.search.pareto import front, objectives, spread
from trimtab.plan.plan import Plan


def predicted(compress, rest, convergence_slowdown):
    return Prediction(Plan(0.01, "all-gather"), compress, rest, 0.5, convergence_slowdown, compress + rest)


def dominates(a, b):
    pairs = list(zip(objectives(a), objectives(b), strict=True))
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)


#: Of few values, so that some are equal.
values = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
any_value = st.floats(0, 1)


@given(st.lists(st.one_of(st.builds(predicted, *[values] * 3), st.builds(predicted, *[any_value] * 3)), max_size=30))
def test_the_front_is_what_nothing_dominates(predictions):
    survivors = front(predictions)
    assert bool(survivors) == bool(predictions)
    assert not any(dominates(a, b) for a in predictions for b in survivors)
    kept = [objectives(survivor) for survivor in survivors]
    assert len(set(kept)) == len(kept), "each once"
    assert all(objectives(p) in kept or any(dominates(s, p) for s in survivors) for p in predictions)


def test_a_long_front_is_shown_by_plans_from_all_over_it_and_the_one_chosen():
    along = front([predicted(x / 1000, (1 - x / 1000) ** 2, 1.0) for x in range(1001)])
    chosen = along[777]
    shown = spread(along, 40, always=chosen)
    assert len(shown) == 40
    assert chosen in shown
    assert {along[0], along[-1]} <= set(shown)
    assert shown == sorted(shown, key=lambda each: each.sync_seconds)


def test_a_short_front_is_shown_whole():
    along = [predicted(x / 10, 1 - x / 10, 1.0) for x in range(10)]
    assert spread(along, 40, always=along[0]) == along
