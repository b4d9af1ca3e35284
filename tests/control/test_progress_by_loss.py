"""The job's own loss corrects the law of relative steps: by how much, how surely, and when not at all."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import exp

import pytest
from recorded import DIGITS, GPT, Recording
from trimtab.control.cost_model.convergence_learning import Progress, varies_with
from trimtab.plan.plan import Plan, dense_plan

DENSE, SPARSE, SPARSER = dense_plan(), Plan(0.01, "all-gather"), Plan(0.001, "all-gather")
UPDATES = Plan(0.01, "all-gather", source="update:steps=4")
WHOLE_UPDATES = Plan(1.0, "dense-ring", source="update:steps=4")
#: Of what is true, as a factor.
RIGHT, TOO_MUCH, TOO_LITTLE = 1.0, 4.0, 0.25


def learned(
    recording: Recording, plans: Sequence[tuple[Plan, int]], law: float, seed: int = 0, progress: Progress | None = None
) -> Progress:
    """What a recorded training's loss has taught, under each plan for so many steps, by a law that is off."""
    noise, taken, progress = random.Random(seed), 0.0, progress or Progress()
    for plan, num_steps in plans:
        for _ in range(num_steps):
            true = 1 / recording.interpolated(plan, taken)
            loss = recording.loss(taken) * exp(noise.gauss(0, recording.loss_noise))
            progress.observe(plan, loss, 1.0 if plan is DENSE else max(1.0, law * true))
            taken += max(1, plan.local_steps) / true
    return progress


def taking_turns(times: int = 4) -> list[tuple[Plan, int]]:
    return times * [(DENSE, 20), (SPARSE, 60)]


def test_nothing_is_known_at_first_nor_under_one_plan() -> None:
    for progress in (Progress(), learned(GPT, [(SPARSE, 300)], TOO_MUCH)):
        assert progress.correction(SPARSE).applied == 1
        assert progress.correction(SPARSE).believed == pytest.approx(1, rel=1e-6)
        assert not progress.has_moved


def test_dense_is_what_all_else_is_compared_with() -> None:
    correction = learned(GPT, taking_turns(), TOO_MUCH).correction(DENSE)
    assert (correction.applied, correction.deviation) == (1, 1)


@pytest.mark.parametrize("recording", [GPT, DIGITS], ids=["gpt", "digits"])
def test_a_law_that_is_off_by_four_is_found_out(recording: Recording) -> None:
    for seed in range(3):
        charged_too_much = learned(recording, taking_turns(), TOO_MUCH, seed)
        charged_too_little = learned(recording, taking_turns(), TOO_LITTLE, seed)
        assert charged_too_much.correction(SPARSE).believed < 0.75
        assert charged_too_much.correction(SPARSE).applied < charged_too_little.correction(SPARSE).applied


def test_what_is_applied_lies_beyond_one_deviation_and_within_bounds() -> None:
    progress = learned(GPT, taking_turns(), TOO_MUCH)
    correction = progress.correction(SPARSE)
    assert correction.believed < 1
    assert correction.applied == pytest.approx(min(1.0, correction.believed * correction.deviation))
    never_falls = Progress()
    for turn in range(40):
        plan = DENSE if turn % 2 == 0 else SPARSE
        for step in range(20):  # falls under dense alone
            never_falls.observe(plan, 100 - 20 * (turn // 2) - (step if plan is DENSE else 20) + step % 2 / 10, 2.0)
    assert 2 < never_falls.correction(SPARSE).applied < 8
    assert never_falls.correction(SPARSE).is_disappointing


def test_gradients_and_updates_are_told_apart() -> None:
    progress = learned(DIGITS, 6 * [(DENSE, 15), (UPDATES, 10)], TOO_MUCH)
    assert progress.correction(SPARSE).believed == pytest.approx(1, rel=1e-6)
    assert progress.correction(UPDATES).believed < 0.9
    assert progress.correction(SPARSER).deviation > progress.correction(UPDATES).deviation


def test_updates_sent_whole_and_selected_ones_are_told_apart() -> None:
    progress = learned(DIGITS, 6 * [(DENSE, 15), (WHOLE_UPDATES, 10)], TOO_MUCH)
    assert progress.correction(UPDATES).believed == pytest.approx(1, rel=1e-6)
    assert progress.correction(WHOLE_UPDATES).believed < 0.9
    longer_rounds = replace(WHOLE_UPDATES, source="update:steps=16")
    assert progress.correction(longer_rounds) == progress.correction(WHOLE_UPDATES)


def test_what_is_unknown_of_plans_is_common_to_those_that_send_the_same() -> None:
    kinds = [[DENSE, replace(DENSE, collective="dense-tree")], [SPARSE, SPARSER], [UPDATES], [WHOLE_UPDATES]]
    plans = [(kind, plan) for kind, alike in enumerate(kinds) for plan in alike]
    for (kind, plan), (other_kind, other) in product(plans, plans):
        assert varies_with(plan, other) == (kind == other_kind)


def test_what_an_older_checkpoint_does_not_name_is_believed_as_at_first() -> None:
    state = learned(DIGITS, 6 * [(DENSE, 15), (UPDATES, 10)], TOO_MUCH).state_dict()
    older = {what: {sent: of for sent, of in state[what].items() if sent != "whole update"} for what in state}
    restarted = Progress()
    restarted.load_state_dict(json.loads(json.dumps(older)))
    assert restarted.correction(UPDATES).believed < 0.9
    assert restarted.correction(WHOLE_UPDATES) == Progress().correction(WHOLE_UPDATES)


def test_one_outlier_or_a_loss_that_is_no_number_teaches_nothing_much() -> None:
    progress = learned(GPT, taking_turns(), RIGHT)
    before = progress.correction(SPARSE)
    for loss in (float("nan"), float("inf"), 1e6):
        progress.observe(DENSE, loss, 1.0)
    assert progress.correction(SPARSE).believed == pytest.approx(before.believed, rel=0.3)


def test_it_moves_once_for_each_time_that_it_is_looked_at() -> None:
    progress = learned(GPT, taking_turns(), TOO_MUCH)
    assert progress.has_moved
    progress.look()
    assert not progress.has_moved


def test_what_is_believed_survives_a_restart() -> None:
    progress, restarted = learned(GPT, taking_turns(), TOO_MUCH), Progress()
    restarted.load_state_dict(json.loads(json.dumps(progress.state_dict())))
    for plan in (SPARSE, SPARSER, UPDATES, WHOLE_UPDATES):
        mine, own = restarted.correction(plan), progress.correction(plan)
        assert (mine.applied, mine.deviation) == pytest.approx((own.applied, own.deviation))
    learned(GPT, taking_turns(1), TOO_MUCH, progress=restarted)
    assert restarted.correction(SPARSE).deviation <= 1.05 * progress.correction(SPARSE).deviation
