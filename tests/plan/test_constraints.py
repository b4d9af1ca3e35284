"""The table of plans that a script cannot have: what a job is refused for is never chosen either."""

from itertools import product

import pytest
from trimtab.plan.constraints import PLAN_CONSTRAINTS, Script, excluded
from trimtab.plan.plan import Plan
from trimtab_api.catalogue import schedules
from trimtab_api.errors import UserError

ALTERNATING, MANUAL = Script(alternates=True), Script(is_manual=True)
HOOK = Script(is_manual=True, is_hook=True)
WITH_MOMENTUM = Script(momentum=0.9, momentum_of="SGD")
SOURCES = ("gradient", "gradient:momentum=0.9", "update:steps=4")


@pytest.mark.parametrize(
    ("script", "plan", "message"),
    [
        (ALTERNATING, "dense/source=update:steps=4", "plan.source: 'update:steps=4': makes rounds of several steps"),
        (HOOK, "dense/source=update:steps=4", "plan.source: 'update:steps=4': makes rounds of local steps"),
        (HOOK, "dense/schedule=deft", "plan.schedule: 'deft': delays gradients"),
        (MANUAL, "dense/schedule=deft", "plan.schedule: 'deft': delays gradients"),
        (
            WITH_MOMENTUM,
            "0.1/all-gather/source=gradient:momentum=0.5",
            "source: 'gradient:momentum=0.5': corrects the momentum of an optimizer that has none of its own, and SGD"
            " has 0.9;",
        ),
    ],
)
def test_a_plan_that_a_script_cannot_follow_is_refused(script: Script, plan: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        Plan.parse(plan).check_for(script)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("script", "plan"),
    [
        (Script(), "dense/schedule=overlap/source=update:steps=4"),
        (MANUAL, "dense/source=update:steps=4"),
        (HOOK, "dense/schedule=priority"),
        (WITH_MOMENTUM, "0.1/all-gather"),
    ],
)
def test_a_plan_that_it_can_follow_is_not(script: Script, plan: str) -> None:
    Plan.parse(plan).check_for(script)


@pytest.mark.parametrize("script", [ALTERNATING, MANUAL, HOOK, WITH_MOMENTUM])
def test_nothing_is_chosen_that_would_be_refused(script: Script) -> None:
    num_refused = 0
    for schedule, source in product(schedules.built_in, SOURCES):
        try:
            plan = Plan(0.1, "all-gather", schedule=schedule, source=source)
        except UserError:
            continue  # no script can have it
        try:
            plan.check_for(script)
        except UserError:
            num_refused += 1
            assert excluded(schedule, source, script) is not None
    assert num_refused


def test_each_row_names_an_axis_and_a_sentence_that_can_be_filled_in() -> None:
    for row in PLAN_CONSTRAINTS:
        assert row.field.rpartition(".")[2] in ("schedule", "source")
        assert "{" not in str(row.error("wait-free", "gradient", WITH_MOMENTUM))
