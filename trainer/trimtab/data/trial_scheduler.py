"""Schedules trials in a script's loops: in the loop whose batch the step was made of, where every rank can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trimtab.data.owners import Control, LoopEvents, People, TrialRunner
from trimtab.data.replay import Replay
from trimtab.plan.plan import Plan
from trimtab.process.messages import LOGGER
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import gather_numbers

#: A rank's answers when all are asked for trials.
_CAN_TRY, _TOO_FEW_BATCHES, _CANNOT_REPLAY = range(3)
#: Steps after which a script that has asked for no batches is taken not to.
_STEPS_WITHOUT_LOOP = 3
_INSTEAD = "plans are chosen from measurements and predictions alone"
_NO_TRIALS = "trials are disabled: the loop uses neither session.batches() nor session.trials();"
f" {_INSTEAD}"
_NO_TRIALS_OF_TURNS = f"trials are disabled: optimizers alternate, so one batch serves several steps; {_INSTEAD}"
_SEVERAL_LOOPS = (
    "a step uses batches of several loops over session.batches, as zip() gives them; loop over one loader of them all"
)


class TrialScheduler:
    """The trials of one session: agreed on by all ranks, then run before the next batch of their loop."""

    def __init__(
        self,
        control: Control,
        people: People,
        events: LoopEvents,
        *,
        alternating_optimizers: bool = False,
    ) -> None:
        """Schedule nothing yet.

        Args:
            control: Knows whether trials are wanted.
            people: Takes lines for people.
            events: Is told of the end of trials.
            alternating_optimizers: Whether a batch may be of several steps, so that there are no trials.
        """
        self._control, self._people, self._events = control, people, events
        self._alternating_optimizers = alternating_optimizers
        self._request: tuple[Replay, TrialRunner, Sequence[Plan], int] | None = None
        """Trials that all ranks have agreed on, and the loop whose batches they replay."""
        self._num_steps_unseen = 0
        """Steps without any loop."""
        self._never_tries = False
        self._mixes_loops = False
        """True if a step was made of the batches of several loops, which could not all be given again."""

    def stepped(self, loops: Sequence[Replay], *, have_begun: bool) -> None:
        """Note a step that was made of the batches which these loops gave since the last; any have begun or not."""
        if self._alternating_optimizers and self._control.can_run_trials:
            self._people.say(_NO_TRIALS_OF_TURNS)
        elif not have_begun and self._control.can_run_trials:
            self._num_steps_unseen += 1
            if self._num_steps_unseen == _STEPS_WITHOUT_LOOP:
                self._people.say(_NO_TRIALS)
        self._mixes_loops |= sum(loop.num_since_step > 0 for loop in loops) > 1

    def num_steps_left(self, loops: Sequence[Replay]) -> int:
        """Return the steps left in the epoch of the last loop; 0 where no trial can be run."""
        if not loops or self._never_tries or self._alternating_optimizers:
            return 0
        return loops[-1].num_left // loops[-1].num_a_step

    def agree(
        self, group: Group, loops: Sequence[Replay], trials: TrialRunner, plans: Sequence[Plan], iterations: int
    ) -> bool:
        """Return whether trials begin with the next batch; every rank calls it together, and hears the same.

        They do where every rank's last loop can give as many batches, and give them again.
        """
        loop = loops[-1] if loops and not self._alternating_optimizers else None
        can, why_not = _TOO_FEW_BATCHES, None
        if loop is not None and 0 < iterations * loop.num_a_step <= loop.num_left:
            why_not = _SEVERAL_LOOPS if self._mixes_loops else loop.why_not_replayed
            can = _CAN_TRY if why_not is None else _CANNOT_REPLAY
        answers = gather_numbers(group, can)
        if why_not is not None:
            LOGGER.warning(f"rank {group.rank}: no trials: {why_not}")
        self._never_tries |= _CANNOT_REPLAY in answers
        if loop is None or set(answers) != {_CAN_TRY}:
            return False
        self._request = (loop, trials, plans, iterations)
        return True

    def run(self, replay: Replay, loops: Sequence[Replay]) -> Iterator[Any]:
        """Give the batches of the trials that were asked for in the loop ``replay``, one of those under way."""
        if self._request is not None and self._request[0] is replay:
            _, trials, plans, iterations = self._request
            self._request = None
            why_not = yield from trials.run(replay, [loop for loop in loops if loop is not replay], plans, iterations)
            if why_not is not None:
                self._never_tries = True
                self._people.say(f"no further trials: {why_not}; {_INSTEAD}")
            self._events.trials_ended(True)

    def loop_ended(self, replay: Replay) -> None:
        """Drop the trials that were asked for in a loop that ended before they began."""
        if self._request is not None and self._request[0] is replay:
            self._request = None
            self._events.trials_ended(False)

    def close(self) -> None:
        """Let no trial begin any more."""
        self._request = None
