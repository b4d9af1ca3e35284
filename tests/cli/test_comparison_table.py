"""The figures of a comparison's table beside those of dense: a difference is this run's less dense's."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from trimtab.report import table
from trimtab.report.summary import Summary

RUN = Summary(
    accuracy=0.9,
    seconds_to_target=10.0,
    median_step_seconds=0.1,
    bytes_sent=1000,
    plan_changes=0,
    exploration_seconds=0.0,
    wall_seconds=20.0,
    valid=True,
    emulated=True,
    state="succeeded",
    num_steps=100,
)


@given(mine=st.integers(0, 100), dense=st.integers(0, 100))
def test_an_accuracy_above_denses_is_points_more(mine, dense):
    runs = {"dense": replace(RUN, accuracy=dense / 100), "adaptive": replace(RUN, accuracy=mine / 100)}
    (_, by_dense, *_), (_, accuracy, *_) = table.rows(runs, None)
    assert by_dense.against_dense == ""
    assert float(accuracy.against_dense.removesuffix(" pt")) == mine - dense
    assert accuracy.against_dense[0] in "+-"


@given(factor=st.integers(1, 50))
def test_times_and_bytes_are_multiples_of_denses(factor):
    slower = replace(
        RUN,
        seconds_to_target=factor * 10.0,
        median_step_seconds=factor * 0.1,
        bytes_sent=factor * 1000,
        wall_seconds=factor * 20.0,
    )
    _, (_, _, to_target, step, sent, _, _, wall) = table.rows({"dense": RUN, "adaptive": slower}, None)
    assert {each.against_dense for each in (to_target, step, sent, wall)} == {f"{factor:.2f}×"}
