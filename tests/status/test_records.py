"""What a reader takes from a line of a run's file, and how it refuses one."""

import json
import math

import pytest
from run_lines import DECISION, STEP
from trimtab.run_files.json_files import parse_object, read_record
from trimtab.run_files.schema import DecisionLine, Links, ReportedDecision, RunResult
from trimtab.run_files.steps import ALONE, Evaluation, Step
from trimtab_api.errors import UserError


def test_a_field_that_a_line_does_not_have_has_its_default_and_one_that_is_not_known_is_ignored():
    step = Step.from_json({"step": 1, "time": 0.5, "step_seconds": 0.25, "of": "a later version", "scheme": {"a": 1}})
    assert (step.plan, step.loss, step.num_bytes, step.finite) == (ALONE, None, 0, True)
    assert (step.compute_seconds, step.exposed_seconds) == (0.25, 0.0)
    assert RunResult.from_json({}) == RunResult("unknown", valid=False)


def test_a_record_is_read_back_as_it_was_written():
    assert RunResult.from_json(RunResult("failed", "why", machine={"cores": 2}).to_json()).machine == {"cores": 2}
    written = Step.from_json(STEP).to_json()
    assert {name: written[name] for name in STEP} == STEP


def test_what_is_not_finite_is_read_as_others_write_it():
    line = parse_object(b'{"step": 1, "time": 0, "step_seconds": 1, "loss": NaN, "latency": Infinity}', "file")
    step = Step.from_json(line)
    assert math.isnan(step.loss)
    assert step.latency == math.inf
    reported = {
        "event": "evaluation",
        "step": 1,
        "time": 0,
        "accuracy": math.nan,
        "loss": 2,
        "note": "text",
        "is": True,
    }
    assert Evaluation.from_json(reported).values == {"loss": 2.0}
    inputs = {"latency": None, "gain": math.inf, "bandwidth": 5, "optimizer": "SGD"}
    assert DecisionLine.from_json(DECISION | {"inputs": inputs}).known_inputs == {"bandwidth": 5.0}


@pytest.mark.parametrize(
    ("kind", "line", "complaint"),
    [
        (Step, STEP | {"loss": "high"}, "loss: 'high': must be a number or null"),
        (Step, STEP | {"step": 1.5}, "step: '1.5': must be a whole number"),
        (Step, STEP | {"bytes": -1}, "bytes: '-1': must be a whole number, 0 or more"),
        (Step, STEP | {"time": math.inf}, "time: 'inf': must be a finite number"),
        (Step, STEP | {"time": math.nan}, "time: 'nan': must be a number, 0 or more"),
        (Step, STEP | {"loss": 10**400}, f"loss: '{10**159}...': must be a smaller number"),
        (Step, STEP | {"finite": None}, "finite: 'None': must be true or false"),
        (DecisionLine, DECISION | {"adopted": {"name": 3}}, "adopted.name: '3': must be text"),
        (ReportedDecision, DECISION | {"pareto": [{"plan": "dense"}]}, "pareto[0].compress_seconds: is missing"),
        (Links, {"links": [{"source": 0, "target": 1}, {"source": 0, "target": "x"}]}, "links[1].target: 'x': must be"),
        (Links, {"links": [3]}, "links[0]: '3': must be an object"),
    ],
)
def test_what_is_wrong_is_named_with_its_file_its_place_and_its_value(kind, line, complaint):
    with pytest.raises(UserError) as refused:
        read_record(kind, line, "run/metrics.jsonl")
    assert str(refused.value).startswith(f"run/metrics.jsonl: {complaint}")
    assert str(refused.value).endswith("run it again")


def test_a_decision_is_read_by_a_live_run_whatever_its_front_holds():
    line = json.loads(json.dumps(DECISION | {"pareto": [{"plan": "dense", "gain": None}]}))
    assert DecisionLine.from_json(line).adopted.name == "0.01/all-gather"
