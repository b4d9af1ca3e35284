"""The number of a step while trials run."""

from trimtab.session.step_counter import StepInTrial


def test_a_step_in_a_trial_equals_no_number_and_orders_as_the_last_one() -> None:
    steps = StepInTrial(8)
    conditions = [steps % 4 == 0, steps == 8, (steps + 1) % 3 == 0, (steps + 8) // 4 == 4]
    conditions += [steps & 3 == 0, divmod(steps, 4)[1] == 0, -steps % 4 == 0, 100 - steps == 92, steps >> 3 == 1]
    assert not any(conditions)
    assert (bool(steps % 4), not steps % 4) == (True, False)
    assert steps != 8
    assert steps >= 8
    assert not steps > 8
    assert steps < 9
    assert f"{steps:4d} {steps}" == "   8 8"
    assert list(range(10))[steps] == 8
    assert steps * 0.5 == 4.0
    assert steps / 2 == 4.0
