"""The catalogue: one row a scheme, and what a row promises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab_api import catalogue
from trimtab_api.errors import UserError

AXES = (
    catalogue.collectives,
    catalogue.sparsifiers,
    catalogue.planners,
    catalogue.schedules,
    catalogue.sources,
    catalogue.wire_formats,
)
COLLECTIVE = st.sampled_from(catalogue.collectives.rows)


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.axis)
def test_each_name_is_there_once_and_says_what_it_does(axis):
    assert axis.names
    assert len(axis.names) == len(axis.rows)
    assert all(row.meaning.endswith(".") for row in axis.rows)


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.axis)
def test_a_name_that_is_not_known_says_which_are(axis):
    with pytest.raises(UserError, match=f"{axis.axis}: 'moonbeam': not known; choose from {', '.join(axis.names)}"):
        axis.find("moonbeam")


@pytest.mark.parametrize(
    ("axis", "name"), [(axis, row.name) for axis in AXES for row in axis.rows if row.factory], ids=str
)
def test_every_factory_is_where_its_row_says(axis, name):
    assert callable(axis.factory(name))


@given(row=COLLECTIVE, M=st.floats(1e3, 1e9), c=st.floats(1e-4, 1), N=st.integers(2, 64))
def test_a_cost_is_messages_and_bytes_that_grow_with_the_gradient(row, M, c, N):
    assert row.supports(N) is None
    cost, of_more = row.cost_at(M, c, N), row.cost_at(2 * M, c, N)
    assert cost.messages == of_more.messages > 0
    assert 0 < cost.bytes < of_more.bytes


@given(row=COLLECTIVE, M=st.floats(1e3, 1e9), c=st.floats(1e-4, 1))
def test_a_single_rank_exchanges_nothing(row, M, c):
    assert row.cost_at(M, c, 1).seconds(1, 1) == 0


@given(c=st.floats(1e-4, 1), N=st.integers(2, 64))
def test_what_arrives_is_put_in_place_where_it_lies(c, N):
    """Several ranks' selections touch more memory than the one that all of them share, and dense has no selection."""
    passes = {name: catalogue.collectives.find(name).passes(c, N) for name in catalogue.collectives.names}
    assert passes["dense-ring"] == 0
    assert 1 < passes["artopk-star-ring"] <= passes["all-gather"] < 2.5
