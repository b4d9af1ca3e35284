"""A loop that draws its batches by itself: it hands its step to trials, or runs over the numbers of its steps."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Generator, Iterator

from trimtab_api.errors import UserError

from trimtab.data.owners import LoopEvents
from trimtab.data.replay import Replay
from trimtab.data.trial_scheduler import TrialScheduler


class OwnLoop:
    """Such a loop of one session, among the others."""

    def __init__(self, loops: list[Replay], trials: TrialScheduler, events: LoopEvents) -> None:
        """Know of none yet.

        Args:
            loops: All loops under way; this one is added.
            trials: Runs the trials that are due.
            events: Is told where the loop comes to.
        """
        self._loops, self._trials, self._events = loops, trials, events
        self.replay: Replay | None = None
        """Stands for the loop; what it gives says only: take a step."""
        self.has_turns = False
        """True if the loop runs over `steps_until`, and so tells when it goes on."""

    def trials(self) -> Iterator[None]:
        """Run the trials that are due: one item for each step to take.

        Raises:
            UserError: A loop that runs its own trials is under way.
        """
        self._refuse_in_loop("session.trials")
        if self.replay is None:
            self._begin(Replay(itertools.repeat(None), sys.maxsize))
        assert self.replay is not None
        yield from self._trials.run(self.replay, self._loops)
        self.replay.next()

    def steps_until(self, num_steps: int, num_taken: Callable[[], int]) -> Generator[None]:
        """Yield once for each step to take until ``num_steps`` are taken, and for those of trials on the way.

        Raises:
            UserError: Another loop is under way.
        """
        self._refuse_in_loop("session.steps_until")
        own = Replay(itertools.repeat(None), max(0, num_steps - num_taken()))
        own.count()  # it shuffles nothing
        self._begin(own)
        self.has_turns = True
        try:
            self._events.on_next_batch(is_outermost=True)
            while num_taken() < num_steps:
                yield from self._trials.run(own, self._loops)
                yield own.next()
                self._events.on_next_batch(is_outermost=True)
        except GeneratorExit:  # the loop was left
            if own.has_stepped:
                self._events.on_loop_left()
            raise
        else:
            if own.has_stepped:
                self._events.on_epoch_end()
        finally:
            self.replay, self.has_turns = None, False
            self._loops.remove(own)
            self._trials.loop_ended(own)

    def _begin(self, replay: Replay) -> None:
        if self.replay is not None:  # that of an earlier loop, which called `trials`
            self._loops.remove(self.replay)
        self.replay = replay
        self._loops.append(replay)

    def _refuse_in_loop(self, call: str) -> None:
        """Raise `UserError` if a loop is under way that runs its own trials."""
        if self.has_turns or any(loop is not self.replay for loop in self._loops):
            over = "session.steps_until" if self.has_turns else "session.batches"
            raise UserError(f"is called in a loop over {over}, which runs its own trials; remove the call", field=call)
