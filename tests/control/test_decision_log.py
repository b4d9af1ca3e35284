"""How decisions are numbered and written down."""

from __future__ import annotations

from dataclasses import replace

from trimtab.control.decision import Inputs, Measured, Prediction
from trimtab.control.decision_log import DecisionLog
from trimtab.control.search.selection import Choice
from trimtab.plan.plan import Plan, dense_plan
from trimtab.run_files.schema import MeasuredLine, ReportedDecision

DENSE = Prediction(dense_plan(), 0.0, 0.2, 1.0, 1.0, 0.3)
SPARSE = Prediction(Plan.parse("0.01/all-gather"), 0.01, 0.02, 0.2, 1.1, 0.13)
INPUTS = Inputs(
    3, latency=1e-3, bandwidth=125e6, gain=1.0, compute_seconds=0.1, dense_step_seconds=0.3, optimizer="SGD (sgd)"
)
CHANGE = Choice(DENSE, DENSE, SPARSE, "it is faster", (SPARSE, DENSE))
STAYS = Choice(DENSE, SPARSE, SPARSE, "nothing is faster", (SPARSE,))


def test_each_decision_has_a_number_and_each_change_a_version() -> None:
    log = DecisionLog()
    first = log.decide("start", 4, 1.0, INPUTS, CHANGE)
    present = replace(SPARSE, plan=first.adopted)
    second = log.decide("network", 9, 2.0, INPUTS, replace(STAYS, previous=present, chosen=present))
    third = log.decide("network", 12, 3.0, INPUTS, Choice(DENSE, present, DENSE, "back to dense"))
    assert [each.id for each in (first, second, third)] == [1, 2, 3]
    assert [each.adopted.version for each in (first, second, third)] == [1, 1, 2]
    assert [each.changed for each in (first, second, third)] == [True, False, True]


def test_numbers_go_on_after_a_restart() -> None:
    log, resumed = DecisionLog(), DecisionLog()
    log.decide("start", 4, 1.0, INPUTS, CHANGE)
    resumed.load_state_dict(log.state_dict())
    decision = resumed.decide("start", 5, 1.5, INPUTS, CHANGE)
    assert (decision.id, decision.adopted.version) == (2, 2)


def test_lines_are_drained_once_in_order_and_read_back_as_they_were_written() -> None:
    log = DecisionLog()
    decision = log.decide("start", 4, 1.0, INPUTS, CHANGE)
    log.measured(None)  # too few steps to say
    log.measured(Measured(decision.id, 14, 2.0, 0.31, 0.14, 10))
    told, measured = log.drain()
    assert log.drain() == []
    line = ReportedDecision.from_json(told).with_measured(MeasuredLine.from_json(measured))
    assert (line.adopted.name, line.reason, line.measured_seconds) == ("0.01/all-gather", "it is faster", 0.14)
    assert [point.plan for point in line.pareto] == [SPARSE.plan.name, DENSE.plan.name]
