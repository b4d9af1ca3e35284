"""The catalogue: one row a scheme, and what a row promises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab_api.catalogue import (
    AXES,
    COLLECTIVES,
    DEFAULT_COLLECTIVES,
    Collective,
    Cost,
    Option,
    collective_cost,
    collectives,
    cost_table,
    schedules,
    sources,
    whole_number,
    why_not,
)
from trimtab_api.errors import UserError

EVERY_AXIS = (collectives, *AXES.values())


@pytest.mark.parametrize("axis", EVERY_AXIS, ids=lambda axis: axis.name)
def test_every_scheme_says_what_it_does_and_where_its_implementation_is(axis):
    for row in axis.rows():
        assert row.meaning
        assert axis[row.name] is row
        if axis in (sources,) or axis.name == "wire":
            continue  # carried out by the step engine, and by each collective
        module, _, attribute = row.implementation.partition(":")
        assert callable(getattr(__import__(module, fromlist=[attribute]), attribute))


@pytest.mark.parametrize("axis", EVERY_AXIS, ids=lambda axis: axis.name)
def test_a_name_that_is_not_known_says_which_are(axis):
    with pytest.raises(UserError, match=f"{axis.name}: 'moonbeam': not known; choose from {', '.join(axis.names())}"):
        axis.canonical("moonbeam")


NAMES = st.sampled_from(COLLECTIVES)


@given(name=NAMES, M=st.floats(1e3, 1e9), c=st.floats(1e-4, 1), N=st.integers(2, 64))
def test_a_cost_is_messages_and_bytes_that_grow_with_the_gradient(name, M, c, N):
    assert why_not(name, N) is None
    cost, of_more = collective_cost(name, M, c, N), collective_cost(name, 2 * M, c, N)
    assert cost.messages == of_more.messages > 0
    assert 0 < cost.bytes < of_more.bytes


@given(name=NAMES, M=st.floats(1e3, 1e9), c=st.floats(1e-4, 1))
def test_a_single_rank_exchanges_nothing(name, M, c):
    assert collective_cost(name, M, c, 1).seconds(1, 1) == 0


@given(c=st.floats(1e-4, 1), N=st.integers(2, 64))
def test_what_arrives_is_put_in_place_where_it_lies(c, N):
    """Several ranks' selections touch more memory than the one that all of them share, and dense has no selection."""
    passes = {name: collectives[name].passes(c, N) for name in COLLECTIVES}
    assert passes["dense-ring"] == 0
    assert 1 < passes["artopk-star-ring"] <= passes["all-gather"] < 2.5


@pytest.fixture
def marching_bands(monkeypatch):
    """A collective whose bands are an option: each takes a message, and they divide the ranks."""
    monkeypatch.setattr(collectives, "_rows", dict(collectives._rows))
    collectives.add(
        Collective(
            "marching",
            "in bands",
            options=(Option("bands", whole_number(1), "how many", default=1),),
            cost=lambda M, c, N, bands: Cost(bands, M * c),
            why_not=lambda N, bands: f"use bands that divide the ranks, and not {bands}" if N % bands else None,
            cuts_union=True,
            more_passes=0.5,
            shown_with=("bands=3", "bands=4"),
        )
    )
    yield
    collectives._found.clear()


def test_options_decide_what_a_collective_costs_and_where_it_runs(marching_bands):
    assert collective_cost("marching:bands=3", 1e6, 0.01, 6).messages == 3
    assert collective_cost("marching", 1e6, 0.01, 6).messages == 1
    assert why_not("marching:bands=3", 6) is None
    assert "not 4" in why_not("marching:bands=4", 6)
    shown = dict(cost_table(1e6, 0.01, 6))
    assert {spec for spec in shown if spec.startswith("marching")} == {"marching", "marching:bands=3"}
    assert shown["marching:bands=3"].messages == 3


def test_what_a_row_says_of_its_mean_and_passes_decides_what_arrives(marching_bands):
    row = collectives["marching"]
    assert row.arriving(0.01, 8) == 0.01
    assert row.passes(1e-9, 8) == pytest.approx(1.5)


def test_another_collective_is_not_chosen_unless_it_is_asked_for():
    assert (
        "all-gather",
        *(f"artopk-{election}-{shape}" for election in ("star", "var") for shape in ("ring", "tree")),
    ) == DEFAULT_COLLECTIVES


def test_the_table_of_costs_holds_what_can_run_and_what_it_stands_beside():
    names = [name for name, _ in cost_table(1e8, 0.01, 8)]
    assert set(COLLECTIVES) < set(names)
    assert {"parameter-server", "spardl", "ok-topk"} < set(names)


def test_a_new_scheme_does_not_become_a_choice_of_jobs_that_name_none():
    """What the judge has compared; a job's controller chooses among these unless its file says otherwise."""
    artopk = {f"artopk-{election}-{shape}" for election in ("star", "var") for shape in ("ring", "tree")}
    assert set(DEFAULT_COLLECTIVES) == {"all-gather", *artopk}


def test_only_schedules_that_say_so_delay_updates():
    assert [row.name for row in schedules.rows() if row.delays_updates and row.name in schedules.built_in] == ["deft"]
