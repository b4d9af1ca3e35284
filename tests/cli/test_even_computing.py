"""What the judge makes of runs whose machine was not equally fast in all of them."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from trimtab.evaluation.judge.arrival import Arrival, arrival_of, evened
from trimtab.evaluation.judge.verdict import Measured
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.reader import Run
from trimtab.run_files.schema import RunResult, Target
from trimtab.run_files.steps import Evaluation, Step

TARGET = Target("loss", 2.0)


def run_of(computing: float, waiting: float, *, reached_after: int | None = 40, num_steps: int = 50) -> Run:
    """Every step computes and waits for so many seconds; an evaluation of 10 ms follows each tenth."""
    steps, evaluations, time = [], [], 0.0
    for number in range(num_steps):
        time += computing + waiting
        steps.append(Step.from_json(line(number, time, computing, waiting)))
        if (number + 1) % 10 == 0:
            time += 0.01
            loss = 1.9 if reached_after is not None and number + 1 >= reached_after else 2.5
            evaluations.append(Evaluation(number, time, {"loss": loss}))
    return Run("any", RunDirectory(Path("none")), steps, [], evaluations, [], [], {}, RunResult())


def seconds(*arrivals: Arrival) -> list[float]:
    return [each.seconds for each in arrivals]


def arrivals(*times: float) -> list[Arrival]:
    return [Arrival(each) for each in times]


def line(number: int, time: float, computing: float, waiting: float) -> dict[str, float]:
    return {"step": number, "time": time, "step_seconds": computing + waiting, "compute_seconds": computing}


def test_runs_that_differ_in_computing_alone_are_there_at_one_time() -> None:
    slow, usual, fast = (run_of(computing, 0.02) for computing in (0.09, 0.06, 0.05))
    times = evened({"a": [slow, usual], "b": [fast]}, TARGET)
    assert seconds(*times["a"], *times["b"]) == pytest.approx(3 * [40 * (0.06 + 0.02) + 4 * 0.01])


def test_all_else_stays_as_it_was_measured() -> None:
    times = evened(
        {"a": [run_of(0.09, 0.02)], "b": [run_of(0.06, 0.05)], "c": [run_of(0.05, 0.03, reached_after=30)]}, TARGET
    )
    waits_less, waits_more, needs_fewer_steps = (seconds(*of_plan)[0] for of_plan in times.values())
    assert waits_more - waits_less == pytest.approx(40 * 0.03)
    assert needs_fewer_steps == pytest.approx(30 * (0.06 + 0.03) + 3 * 0.01)


def test_what_was_not_reached_stays_so_and_counts_for_what_is_usual() -> None:
    times = evened({"a": [run_of(0.05, 0.02)], "b": 2 * [run_of(0.09, 0.02, reached_after=None)]}, TARGET)
    assert times["b"] == 2 * [Arrival(inf)]
    assert seconds(*times["a"]) == pytest.approx([40 * (0.09 + 0.02) + 4 * 0.01])


def test_medians_count_what_was_not_reached_as_never() -> None:
    measured = Measured(
        {
            "adaptive": arrivals(3.0, inf, 2.0),
            "dense": arrivals(6.0, 5.0, 7.0),
            "0.1/all-gather": arrivals(inf, 1.0, inf),
        }
    )
    assert measured.medians == {"adaptive": 3.0, "dense": 6.0, "0.1/all-gather": inf}
    assert (measured.best, measured.over_best) == ("dense", 0.5)
    assert measured.over("0.1/all-gather") is None
    assert Measured().over_best is None


def test_runs_that_do_not_tell_what_they_compute_are_left_out() -> None:
    silent = run_of(0.09, 0.0)
    (telling,) = evened({"a": [run_of(0.06, 0.02)], "hook": [silent]}, TARGET).items()
    assert (telling[0], *seconds(*telling[1])) == ("a", pytest.approx(40 * 0.08 + 0.04))
    assert evened({"hook": [silent]}, TARGET) == {}


def test_a_run_that_was_given_up_bounds_what_its_plan_took() -> None:
    never = run_of(0.06, 0.02, reached_after=None)
    given_up = replace(never, result=RunResult(state="deadline"))
    assert arrival_of(never, TARGET) == Arrival(inf)
    assert arrival_of(given_up, TARGET) == Arrival(never.seconds, was_given_up=True)
    (evened_by_half,) = evened({"a": [given_up, run_of(0.08, 0.02), run_of(0.08, 0.02)]}, TARGET)["a"][:1]
    assert evened_by_half == Arrival(pytest.approx(never.seconds + 50 * 0.02), was_given_up=True)


@pytest.mark.parametrize(
    ("dense", "is_bound"),
    [
        ([Arrival(9, was_given_up=True)], True),
        ([Arrival(5), Arrival(9, was_given_up=True)], True),
        ([Arrival(5), Arrival(6), Arrival(9, was_given_up=True)], False),
        ([Arrival(5), Arrival(9, was_given_up=True), Arrival(8, was_given_up=True)], True),
        ([Arrival(5), Arrival(9), Arrival(8, was_given_up=True)], True),
        ([Arrival(5)], False),
    ],
)
def test_a_median_is_a_bound_where_a_later_arrival_would_move_it(dense: list[Arrival], is_bound: bool) -> None:
    measured = Measured({"adaptive": arrivals(3.0), "dense": dense, "0.1/all-gather": arrivals(4.0)})
    assert measured.is_bound("dense") is is_bound
    assert measured.to_json("measured")["measured_given_up"] == (["dense"] if is_bound else [])
    assert not measured.is_bound("dense", "0.1/all-gather"), "who was there first was there"
    assert not measured.is_bound("ddp-fp16"), "what never ran"
