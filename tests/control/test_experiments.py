"""What the loss teaches changes the plan: experiments, what is left for good, and why it says so."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import log
from typing import Any

import pytest
from plans import evaluator_of
from recorded import random_adam_cluster
from simulator import ADAPTIVE
from trimtab.control import experiments
from trimtab.control.cost_model import predictor as predict
from trimtab.control.decision import Prediction
from trimtab.evaluation.judge.simulated_cluster import SGD
from trimtab.evaluation.judge.simulated_run import SimulatedRun
from trimtab.plan.plan import Plan


def decided(run: SimulatedRun, num_steps: int) -> list[dict]:
    """The decisions of a run's first steps."""
    while run.step < num_steps:
        run.advance()
    return [line for line in run.log if line["record"] == "decision"]


@pytest.fixture
def charging_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A law by which compression costs next to nothing, where it costs several times the steps."""
    for name, value in {"_SHARE": 0.08, "_ADVANCE_STEPS": 150, "_DEVIATIONS": 1.5, "_WORTH_IT": log(1.3)}.items():
        monkeypatch.setattr(experiments, name, value)  # sooner than by default
    lawful = predict.convergence_slowdown
    monkeypatch.setattr(predict, "convergence_slowdown", lambda *known, **more: max(1.0, lawful(*known, **more) / 4))


def test_a_plan_whose_steps_bring_too_little_is_left_for_good_and_the_reason_says_so(charging_nothing: None) -> None:
    decisions = decided(SimulatedRun(random_adam_cluster(0, 4), ADAPTIVE, 0), 120)
    triggers = [each["trigger"] for each in decisions]
    assert triggers.index("experiment") < triggers.index("progress")
    experiment = decisions[triggers.index("experiment")]
    assert experiment["reason"].startswith("for a while, to learn what its steps bring")
    told = [each for each in decisions if "of what was promised" in each["reason"]]
    assert told, "why it was left"
    left = experiment["previous"]["name"]
    assert f"a step of {left} brings" in told[0]["reason"]
    after = decisions[decisions.index(told[0]) :]
    assert left not in {each["adopted"]["name"] for each in after if each["trigger"] != "network"}


def test_nothing_is_tried_without_a_loss_nor_without_a_budget_nor_under_sgd(charging_nothing: None) -> None:
    cluster = random_adam_cluster(0, 4)
    for told, settings in (
        (replace(cluster, loss=None), ADAPTIVE),
        (cluster, replace(ADAPTIVE, exploration_share=0)),
        (replace(cluster, optimizer=SGD), ADAPTIVE),
    ):
        triggers = {each["trigger"] for each in decided(SimulatedRun(told, settings, 0), 60)}
        assert not triggers & {"experiment", "progress"}


def test_a_look_at_what_could_be_tried_comes_no_sooner_than_seconds_after_one_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each weighs some hundred plans beside training: every eighth step of 40 ms that showed."""
    monkeypatch.setattr(experiments, "_WORTH_IT", log(1e9))
    asked_at, acknowledged = [], []
    suggest, promise = experiments.Exploration.suggest, experiments.Exploration._promise

    def asked(self: experiments.Exploration, *about: Any) -> Any:
        asked_at.append(about[-1])
        return suggest(self, *about)

    def looked(self: experiments.Exploration, *about: Any) -> Any:
        acknowledged.append(asked_at[-1])
        return promise(self, *about)

    monkeypatch.setattr(experiments.Exploration, "suggest", asked)
    monkeypatch.setattr(experiments.Exploration, "_promise", looked)
    decided(SimulatedRun(random_adam_cluster(0, 4), ADAPTIVE, 0), 200)
    times = sorted(set(acknowledged))
    apart = [after - before for before, after in pairwise(times)]
    assert len(apart) > 1
    assert min(apart) >= 3.0
    assert len(asked_at) > 8 * len(times), "steps are short"


def test_an_experiment_pays_for_what_a_change_of_source_exchanges_there_and_back() -> None:
    gradients, updates = Plan(0.1, "all-gather"), Plan(0.1, "all-gather", source="update:steps=4")

    def evaluate(plan: Plan) -> Prediction:
        is_all = plan.is_dense and not plan.local_steps
        return Prediction(plan, 0.0, 5.0 if is_all else 0.1, 0.5, 1.0, 5.2 if is_all else 0.3)

    evaluator = evaluator_of(evaluate, ADAPTIVE, updates)
    there_and_back = experiments._once(evaluator, evaluate(gradients))
    assert there_and_back == pytest.approx(2 * 5.0)  # residuals and momentum, once
    assert experiments._once(evaluator, evaluate(replace(updates, ratio=0.01))) == 0
