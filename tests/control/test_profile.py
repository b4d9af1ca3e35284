"""What profiled steps change in the controller's mind, and that they survive a checkpoint."""

from __future__ import annotations

import json

import pytest
from trimtab.control.factory import make_controller
from trimtab.control.types import ControllerSettings, ModelFacts
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.profile import BucketTimes, ModuleTimes, Profile
from trimtab_api.netmon.view import NetworkView

FACTS = ModelFacts(4_000_000, (3_000_000, 1_000_000), 4)
TWO_BUFFERS = FusionPlan((0, 3_000_000))


def profile(backward):
    return Profile(
        step=12,
        num_steps=3,
        plan=Plan(0.01, "all-gather", fusion=TWO_BUFFERS),
        lead_seconds=0.02,
        tensor_backward_seconds=backward,
        modules=(ModuleTimes("0", 3_000_000, 4_000_000, 0.01, 0.02), ModuleTimes("1", 0, 3_000_000, 0.01, 0.02)),
        buckets=(BucketTimes(0.001, 0.02), BucketTimes(0.003, 0.05)),
        loss=1.5,
        squared_gradient_norm=0.25,
        gradient_variance=0.5,
    )


def predicted(controller):
    plan = Plan(0.05, "all-gather", fusion=TWO_BUFFERS)
    return controller._learner.predictor.predict(plan, 1e-3, 8e-9).step_seconds


def test_a_gradient_that_comes_early_is_hidden_better_than_its_size_told():
    controllers = [make_controller(ControllerSettings(), FACTS) for _ in range(2)]
    unprofiled = predicted(controllers[0])
    for controller, backward in zip(controllers, ((0.001, 0.039), (0.039, 0.001)), strict=True):
        controller.observe_profile(profile(backward), 3.0)
    early, late = map(predicted, controllers)
    assert early < unprofiled < late


def test_it_is_written_down():
    controller = make_controller(ControllerSettings(), FACTS)
    controller.observe_profile(profile((0.01, 0.03)), 3.0)
    (line,) = controller.log.drain()
    assert (line["record"], line["step"], line["time"], line["loss"]) == ("profile", 12, 3.0, 1.5)
    assert line["buckets"][1] == {"compress_seconds": 0.003, "wire_seconds": 0.05}
    assert line["predicted"] is None, "nothing is known of the network"
    json.dumps(line, allow_nan=False)


def test_with_it_goes_what_the_model_makes_of_a_step():
    controller = make_controller(ControllerSettings(), FACTS)
    controller.observe_network(NetworkView(1, 1e-3, 125e6), 1.0)
    controller.log.drain()
    controller.observe_profile(profile((0.01, 0.03)), 3.0)
    (line,) = controller.log.drain()
    told = line["predicted"]
    assert [span["row"] for span in told["spans"]].count("link 0") == 2
    assert max(span["end"] for span in told["spans"]) == pytest.approx(told["step_seconds"])
    plan, predictor = profile((0.01, 0.03)).plan, controller._learner.predictor
    assert told["step_seconds"] == pytest.approx(predictor.predict(plan, 1e-3, 8e-9).step_seconds)
    json.dumps(line, allow_nan=False)


def test_it_survives_a_restart():
    controller, restored = make_controller(ControllerSettings(), FACTS), make_controller(ControllerSettings(), FACTS)
    controller.observe_profile(profile((0.039, 0.001)), 3.0)
    restored.load_state_dict(json.loads(json.dumps(controller.state_dict())))
    assert predicted(restored) == predicted(controller)
    assert Profile.from_json(json.loads(json.dumps(profile((0.1, 0.2)).to_json()))) == profile((0.1, 0.2))


@pytest.mark.parametrize("backward", [(0.1,), (0.1, 0.1, 0.1), (0.0, 0.0)])
def test_one_of_another_model_is_refused(backward):
    with pytest.raises(ValueError, match="for a model of 2 tensors"):
        make_controller(ControllerSettings(), FACTS).observe_profile(profile(backward), 3.0)


def test_a_static_policy_has_no_use_for_one():
    static = ControllerSettings(policy="static", static_plan=Plan(0.01, "all-gather"))
    controller = make_controller(static, FACTS)
    controller.observe_profile(profile((0.1, 0.2)), 3.0)
    assert controller.log.drain() == []
