"""The catalogue: one row a scheme, and what a row promises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.catalogue_additions import forget_additions
from trimtab_api.catalogue import (
    AXES,
    COLLECTIVES,
    DEFAULT_COLLECTIVES,
    Collective,
    Cost,
    Option,
    SourceOptions,
    choices,
    collective_cost,
    collectives,
    cost_table,
    expand,
    normalize_choice,
    rank_count_error,
    schedules,
    source_options,
    sources,
    sparsifiers,
    whole_number,
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
        axis.normalize("moonbeam")


OPTIONS = [(axis, row, option) for axis in EVERY_AXIS for row in axis.rows() for option in axis.options_of(row)]
#: What no option may be: below, above and beyond all numbers, nothing, and no number.
NEVER = ("-1", "-0.5", "nan", "inf", "-inf", "1e400", "9" * 40, "1e39", "0x10", "\u0663", " ", "", "-0")
#: Where 0 means something.
ZERO_IS_LEFT_TO_THE_PLANNER = {
    ("schedule", "priority", "credit"),
    ("schedule", "priority", "partition"),
    ("schedule", "us-byte", "partition"),
}
ZERO_IS_NONE = {
    ("source", "gradient", "momentum"),
    ("source", "gradient", "warmup"),
    ("source", "update", "outerMomentum"),
    ("sparsifier", "random-k", "seed"),
}


@pytest.mark.parametrize(("axis", "row", "option"), OPTIONS, ids=lambda each: getattr(each, "name", None) or each.name)
def test_an_option_takes_no_number_that_it_cannot_work_with(axis, row, option):
    others = {o.name: "1" for o in axis.options_of(row) if o.default is None and o is not option}
    path = (axis.name, row.name, option.name)
    zeros = ("0", "0.0", "0B") if path not in ZERO_IS_LEFT_TO_THE_PLANNER | ZERO_IS_NONE else ()
    for bad in (*NEVER, *zeros):
        text = ":".join([row.name, *(f"{key}={value}" for key, value in {**others, option.name: bad}.items())])
        with pytest.raises(UserError) as refusal:
            axis.normalize(text)
        assert (refusal.value.field, refusal.value.value) == (axis.name, text)
        assert f"{option.name}={bad}" in refusal.value.remedy
        assert any(word in refusal.value.remedy for word in ("write", "choose from")), "what to do about it"
    if path in ZERO_IS_LEFT_TO_THE_PLANNER | ZERO_IS_NONE:
        assert axis.options(f"{row.name}:{option.name}=0")[option.name] == 0


@pytest.mark.parametrize(("axis", "row", "option"), OPTIONS, ids=lambda each: each.name)
def test_the_bounds_of_a_number_are_read_back_as_they_are(axis, row, option):
    numbers = ("1", "2147483647", "1000000000000", "4TB", "1e-30", "1e30", "0.999", "1000")
    others = {o.name: "1" for o in axis.options_of(row) if o.default is None and o is not option}
    for number in numbers:
        text = ":".join([row.name, *(f"{key}={value}" for key, value in {**others, option.name: number}.items())])
        try:
            once = axis.normalize(text)
        except UserError:
            continue
        assert axis.normalize(once) == once
        assert axis.options(once) == axis.options(text)


NAMES = st.sampled_from(COLLECTIVES)


@given(name=NAMES, M=st.floats(1e3, 1e9), c=st.floats(1e-4, 1), N=st.integers(2, 64))
def test_a_cost_is_messages_and_bytes_that_grow_with_the_gradient(name, M, c, N):
    assert rank_count_error(name, N) is None
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


def test_what_a_sparsifier_takes_is_charged_to_every_collective_that_asks_one():
    for name in COLLECTIVES:
        row = collectives[name]
        asks = not (row.is_dense or row.has_builtin_sparsifier)
        more = row.passes(0.01, 4, selecting=9.0) - row.passes(0.01, 4, selecting=1.0)
        assert more == pytest.approx(8.0 if asks else 0.0), name
    assert collectives["arc-topk"].has_builtin_sparsifier
    assert sparsifiers[sparsifiers.default].passes == 1.0, "what the others are measured beside"
    assert 4 < sparsifiers["topk"].passes < sparsifiers["mstopk"].passes


@pytest.fixture
def marching_bands():
    """A collective whose bands are an option: each takes a message, and they divide the ranks."""
    collectives.add(
        Collective(
            "marching",
            "in bands",
            options=(Option("bands", whole_number(1), "how many", default=1),),
            cost=lambda M, c, N, bands: Cost(bands, M * c),
            rank_count_error=lambda N, bands: (
                f"use bands that divide the ranks, and not {bands}" if N % bands else None
            ),
            reselects=True,
            extra_passes=0.5,
            table_variants=("bands=3", "bands=4"),
        )
    )
    yield
    forget_additions()


def test_options_decide_what_a_collective_costs_and_where_it_runs(marching_bands):
    assert collective_cost("marching:bands=3", 1e6, 0.01, 6).messages == 3
    assert collective_cost("marching", 1e6, 0.01, 6).messages == 1
    assert rank_count_error("marching:bands=3", 6) is None
    assert "not 4" in rank_count_error("marching:bands=4", 6)
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
    delaying = [row.name for row in schedules.rows() if row.delays_updates and row.name in schedules.built_in]
    assert delaying == ["deft", "overlap"]


def test_what_the_options_of_a_source_ask_for_is_told_by_name():
    assert source_options("gradient") == SourceOptions(0, 0.0, 0.0, momentum=0.0, clip=0.0, warmup=0)
    assert source_options("update:steps=8") == SourceOptions(8, 1.0, 0.0, momentum=0.0, clip=0.0, warmup=0)
    told = source_options("update:steps=8:outerRate=0.7:outerMomentum=0.9")
    assert (told.local_steps, told.outer_rate, told.outer_momentum) == (8, 0.7, 0.9)
    told = source_options("gradient:momentum=0.9:clip=2:warmup=100")
    assert told == SourceOptions(0, 0.0, 0.0, momentum=0.9, clip=2.0, warmup=100)


@given(N=st.integers(2, 12), name=st.sampled_from(collectives.names()))
def test_of_a_rank_that_has_a_host_to_itself_all_bytes_cross_its_device(N, name):
    if rank_count_error(name, N) is not None:
        return
    options = {option: value for option, value in collectives.options(name).items() if option != "per_host"}
    c = 1.0 if collectives[name].is_dense else 0.01
    assert collective_cost(name, 1e6, c, N).bytes == pytest.approx(collectives[name].cost(1e6, c, N, **options).bytes)


@pytest.mark.parametrize(
    ("spec", "num_ranks", "expanded"),
    [
        ("spardl", 6, ("spardl",)),
        ("spardl:teams=auto", 6, ("spardl", "spardl:teams=2", "spardl:teams=3", "spardl:teams=6")),
        ("spardl:teams=auto", 5, ("spardl", "spardl:teams=5")),
        ("all-gather:rounds=auto", 4, ("all-gather", "all-gather:rounds=doubling")),
        (
            "exdyna:partition=auto:threshold=paper",
            4,
            ("exdyna:threshold=paper", "exdyna:partition=coarse:threshold=paper"),
        ),
    ],
)
def test_auto_stands_for_each_legal_value(spec, num_ranks, expanded):
    assert expand(spec, num_ranks) == expanded
    assert expand(normalize_choice(spec), num_ranks) == expanded
    assert set(choices([spec], num_ranks, 1)) == set(expanded)
    assert all(rank_count_error(each, num_ranks) is None for each in expanded)
