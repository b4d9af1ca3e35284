"""A run in a few numbers."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.report.comparison import middle
from trimtab.report.summary import Summary, network_problem, summarise, trial_seconds
from trimtab.report.table import judge, notes, rows
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.reader import Run
from trimtab.run_files.schema import NetworkNote, RunResult, Target
from trimtab.run_files.steps import Evaluation, Step, straggler_of

A_STEP = Step(
    step=0,
    time=0.0,
    loss=1.0,
    step_seconds=0.1,
    compute_seconds=0.06,
    compress_seconds=0.01,
    collective_seconds=0.05,
    num_bytes=100,
    plan="dense-ring",
    plan_version=0,
    gain=1.0,
    latency=0.001,
    bandwidth=1e8,
    network_is_stale=False,
    trial=False,
)


def a_run(steps=(), evaluations=(), **result) -> Run:
    result = RunResult(**{"state": "succeeded", "valid": True, "emulated": True} | result)
    return Run("adaptive", RunDirectory("unused"), list(steps), [], list(evaluations), [], [], {}, result)


def steps(*kinds: tuple[float, bool]) -> list[Step]:
    return [msgspec.structs.replace(A_STEP, step=i, time=time, trial=trial) for i, (time, trial) in enumerate(kinds)]


def test_the_target_is_reached_by_the_first_evaluation_that_shows_it():
    evaluations = [Evaluation(i, float(i), {"accuracy": a}) for i, a in enumerate([0.5, 0.9, 0.98, 0.9, 0.99])]
    summary = summarise(a_run(evaluations=evaluations), Target("accuracy", 0.97))
    assert summary.seconds_to_target == 2.0
    assert summary.accuracy == 0.99


def test_a_loss_has_to_fall_to_its_target():
    evaluations = [Evaluation(i, float(i), {"loss": loss}) for i, loss in enumerate([2.0, 0.6, 0.4])]
    assert summarise(a_run(evaluations=evaluations), Target("loss", 0.5)).seconds_to_target == 2.0


def test_without_a_target_or_an_evaluation_there_is_no_time_to_it():
    evaluation = Evaluation(1, 1.0, {"accuracy": 1.0})
    assert summarise(a_run(evaluations=[evaluation]), None).seconds_to_target is None
    assert summarise(a_run(), Target("accuracy", 1.0)).seconds_to_target is None


def test_trials_cost_time_and_bytes_but_are_no_training_steps():
    run = a_run(steps((1, False), (2, False), (3, True), (5, True), (6, False), (7, True), (9, False)))
    summary = summarise(run, None)
    assert summary.exploration_seconds == (5 - 2) + (7 - 6)
    assert summary.num_steps == 4
    assert summary.bytes_sent == 700
    assert summary.wall_seconds == 9


@given(st.lists(st.tuples(st.floats(0.01, 1), st.booleans()), max_size=40))
def test_what_trials_take_is_never_more_than_the_whole(kinds: list[tuple[float, bool]]):
    time, row = 0.0, []
    for seconds, trial in kinds:
        time += seconds
        row.append(msgspec.structs.replace(A_STEP, time=time, step_seconds=seconds, trial=trial))
    assert 0 <= trial_seconds(row) <= time * (1 + 1e-9)


def summary_of(**values) -> Summary:
    defaults = {
        "accuracy": 0.98,
        "seconds_to_target": 50.0,
        "median_step_seconds": 0.5,
        "bytes_sent": 1000,
        "plan_changes": 0,
        "exploration_seconds": 0.0,
        "wall_seconds": 100.0,
        "valid": True,
        "emulated": True,
        "state": "succeeded",
        "num_steps": 10,
    }
    return Summary(**defaults | values)


def test_every_row_stands_beside_dense():
    adaptive = summary_of(accuracy=0.975, seconds_to_target=10.0, bytes_sent=4, exploration_seconds=5.0)
    row, dense_row = rows({"adaptive": adaptive, "dense": summary_of()}, Target("accuracy", 0.97))
    assert [cell.text for cell in row] == ["adaptive", "97.50%", "10s", "500ms", "4B", "0", "5s", "100s"]
    assert [cell.against_dense for cell in row] == ["", "-0.50 pt", "0.20×", "1.00×", "0.004×", "", "5.0%", "1.00×"]
    assert all(cell.against_dense == "" for cell in dense_row)


@pytest.mark.parametrize(
    ("values", "said"),
    [({"valid": False}, "are not valid"), ({"emulated": False}, "no network was emulated")],
)
def test_what_makes_the_table_doubtful_is_said_beneath_it(values, said):
    assert not any(said in note for note in notes({"dense": summary_of()}))
    assert any(said in note for note in notes({"dense": summary_of(**values)}))


def test_a_rank_that_keeps_others_waiting_is_named():
    said = notes({"dense": summary_of(), "adaptive": summary_of(straggler="rank 2 comes 0.3 s after the others")})
    assert "adaptive: rank 2 comes 0.3 s after the others" in said


def test_the_judge_sets_adaptive_beside_the_best_static_plan_in_hindsight():
    summaries = {
        "adaptive": summary_of(seconds_to_target=22.0),
        "dense": summary_of(seconds_to_target=10.0),
        "0.1/all-gather": summary_of(seconds_to_target=20.0),
        "0.01/all-gather": summary_of(seconds_to_target=40.0),
        "0.001/all-gather": summary_of(seconds_to_target=None),
    }
    said = judge(summaries)
    assert said == "best static plan in hindsight: 0.1/all-gather, 20s to the target; adaptive took 1.10× that"
    assert judge({name: summaries[name] for name in ("adaptive", "dense", "0.001/all-gather")}) == ""


def test_a_run_that_never_reached_the_target_says_so():
    summaries = {"dense": summary_of(seconds_to_target=None)}
    assert rows(summaries, Target("accuracy", 0.97))[0][2].text == "not reached"
    assert rows(summaries, None)[0][2].text == "–"


def test_repeated_runs_are_told_and_figures_that_are_missing_stay_so():
    summary = summary_of(seconds_to_target=2.0, all_seconds_to_target=(1.23456789, None, 2.0))
    assert summary.to_json()["all_seconds_to_target"] == [1.23457, None, 2.0]
    assert "all_seconds_to_target" not in summary_of().to_json()
    assert any("ran 3 times" in note for note in notes({"dense": summary}))


@given(st.lists(st.none() | st.floats(0.1, 100.0), min_size=1, max_size=7))
def test_the_middle_run_is_no_faster_than_half_of_them_and_no_slower_than_half(times):
    reached = [a_run(evaluations=[] if time is None else [Evaluation(1, time, {"accuracy": 1.0})]) for time in times]
    seconds = [math.inf if time is None else time for time in times]
    chosen = summarise(middle(reached, Target("accuracy", 1.0)), Target("accuracy", 1.0)).seconds_to_target
    value = math.inf if chosen is None else chosen
    assert sum(each <= value for each in seconds) >= len(times) / 2
    assert sum(each >= value for each in seconds) >= len(times) / 2 - (len(times) % 2 == 0)


def test_the_longest_time_without_a_measured_network_is_told():
    assert network_problem([]) == ""
    brief = [NetworkNote(0.0, "refused"), NetworkNote(5.0, ""), NetworkNote(30.0, "all tests failed")]
    assert network_problem(brief[:2]) == "the network was not measured from 0 s to 5 s: refused"
    assert network_problem(brief) == "the network was not measured from 30 s to the end: all tests failed"
    said = notes({"adaptive": summary_of(network_problem=network_problem(brief))})
    assert f"adaptive: {network_problem(brief)}" in said


def test_ranks_that_trained_on_the_same_data_are_told_of_beside_the_table():
    told = "all 2 ranks computed the same gradients"
    assert f"adaptive: {told}" in notes({"adaptive": summary_of(data_problem=told)})


def test_steps_that_were_dropped_are_told_beside_the_table():
    dropped = msgspec.structs.replace(A_STEP, finite=False, dropped_by="rank 1: weight")
    summary = summarise(a_run([A_STEP, dropped, dropped]), None)
    assert summary.dropped == "2 of 3 steps were dropped, since a gradient was not finite (rank 1: weight)"
    assert f"adaptive: {summary.dropped}" in notes({"adaptive": summary})
    assert summarise(a_run([A_STEP]), None).dropped == ""


@given(known=st.integers(10, 40), unknown=st.integers(0, 40), late=st.integers(0, 40))
def test_a_straggler_is_last_in_most_of_the_steps_of_which_it_is_known_who_was(known, unknown, late):
    late = min(late, known)
    by_two = [msgspec.structs.replace(A_STEP, last_rank=2, late_seconds=0.05) for _ in range(late)]
    by_others = [msgspec.structs.replace(A_STEP, last_rank=n % 2, late_seconds=0.05) for n in range(known - late)]
    nobody = [msgspec.structs.replace(A_STEP, last_rank=None, late_seconds=None) for _ in range(unknown)]
    found = straggler_of([*by_two, *nobody, *by_others])
    assert (found is not None and found.rank == 2) == (late >= 0.8 * known)
