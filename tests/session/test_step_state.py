"""The states of a step: every event in every state either leads where the table says, or cannot happen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from trimtab.engine.step_state import TRANSITIONS, StepEvent, StepProgress, StepState

#: What a script can do next, by what it has done: each is a whole word of the language that `TRANSITIONS` accepts.
STEPS = st.sampled_from(
    [
        [StepEvent.PASS, StepEvent.LAST_PASS, StepEvent.END],
        [StepEvent.PASS, StepEvent.LAST_PASS, StepEvent.FIRST_OPTIMIZER, StepEvent.LAST_OPTIMIZER, StepEvent.END],
        [StepEvent.PASS, StepEvent.PASS, StepEvent.LAST_PASS, StepEvent.PASS, StepEvent.LAST_PASS, StepEvent.END],
        [StepEvent.PASS, StepEvent.FIRST_OPTIMIZER, StepEvent.LAST_OPTIMIZER],
        [StepEvent.FIRST_OPTIMIZER, StepEvent.END, StepEvent.LAST_OPTIMIZER, StepEvent.END],
        [StepEvent.PASS, StepEvent.LAST_PASS, StepEvent.END, StepEvent.BATCH, StepEvent.END],
        [StepEvent.END],
    ]
)


@given(st.lists(STEPS, max_size=6))
def test_a_script_s_steps_follow_each_other(steps: list[list[StepEvent]]) -> None:
    progress = StepProgress()
    for events in steps:
        for event in events:
            progress.on(event)
        was_left = StepEvent.BATCH in events or (progress.state is StepState.LEFT and events == [StepEvent.END])
        assert progress.state is (StepState.LEFT if was_left else StepState.IDLE)
        assert not progress.has_begun
        assert not progress.is_pending


def test_what_cannot_happen_is_in_no_row() -> None:
    impossible = {
        StepEvent.PASS: {StepState.STEPPING},
        StepEvent.LAST_PASS: {StepState.IDLE, StepState.STEPPING, StepState.LEFT},
        StepEvent.FIRST_OPTIMIZER: {StepState.STEPPING},
        StepEvent.LAST_OPTIMIZER: set(StepState) - {StepState.STEPPING},
        StepEvent.END: set[StepState](),
        StepEvent.BATCH: set(StepState) - {StepState.IDLE},
    }
    possible = {(state, event) for event, states in impossible.items() for state in set(StepState) - states}
    assert set(TRANSITIONS) == possible


def test_only_a_pass_that_ends_the_accumulation_makes_a_step_pending() -> None:
    progress = StepProgress()
    progress.on(StepEvent.PASS)
    assert (progress.has_begun, progress.is_pending) == (True, False)
    progress.on(StepEvent.LAST_PASS)
    assert (progress.has_begun, progress.is_pending) == (True, True)
    progress.on(StepEvent.FIRST_OPTIMIZER)
    assert (progress.has_begun, progress.is_pending) == (True, False)
