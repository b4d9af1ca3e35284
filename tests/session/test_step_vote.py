"""What the ranks' votes add up to, without any ranks: encoded, summed and read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.engine.exchange.consensus import ExchangeSummary, PlanMismatchError, StepConsensus, StepFlags
from trimtab.transport.base import StepTag

PLACE = StepTag(step=7, plan_version=3, trial=0)
VOTE = StepFlags(True, PLACE, 1, has_message=False, participation_changed=False, before=ExchangeSummary())
LOSSES = st.lists(st.none() | st.integers(-8, 8).map(float), min_size=1, max_size=6)


def agreed(votes: list[StepFlags], step_tag: StepTag = PLACE) -> StepConsensus:
    summed = sum(vote.encode(rank, len(votes)) for rank, vote in enumerate(votes))
    return StepConsensus.decode(summed, len(votes), step_tag, 1, step_tag.step)  # type: ignore[arg-type]


@given(LOSSES)
def test_the_loss_is_the_mean_over_the_ranks_that_tell_one(losses: list[float | None]) -> None:
    told = [loss for loss in losses if loss is not None]
    loss = agreed([replace(VOTE, before=ExchangeSummary(loss=loss)) for loss in losses]).loss
    assert loss == (pytest.approx(sum(told) / len(told)) if told else None)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_one_rank_suffices_to_drop_a_step_and_to_tell_the_others(flags: list[tuple[bool, bool, bool]]) -> None:
    consensus = agreed(
        [
            replace(VOTE, finite=finite, has_message=message, participation_changed=changed)
            for finite, message, changed in flags
        ]
    )
    assert consensus.finite == all(finite for finite, _, _ in flags)
    assert consensus.has_message == any(message for _, message, _ in flags)
    assert consensus.participation_changed == any(changed for _, _, changed in flags)


@pytest.mark.parametrize("elsewhere", [{"step": 8}, {"plan_version": 4}, {"trial": 1}])
@pytest.mark.parametrize("size", [2, 5])
def test_ranks_of_which_one_is_elsewhere_do_not_go_on(elsewhere: dict[str, int], size: int) -> None:
    votes = [VOTE] * (size - 1) + [replace(VOTE, step_tag=replace(PLACE, **elsewhere))]
    with pytest.raises(PlanMismatchError, match="ranks disagree"):
        agreed(votes)


def test_ranks_that_took_other_numbers_of_local_steps_do_not_go_on() -> None:
    with pytest.raises(PlanMismatchError, match="same step of a round"):
        agreed([VOTE, replace(VOTE, num_steps=2)])
