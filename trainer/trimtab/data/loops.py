"""The loops over `Session.batches`: which one trains, and how far.

A script may loop over validation data inside its training loop, leave a loop early, or hold on to its iterator. Trials
belong to the loop whose batch the step was made of (`trimtab.data.trial_scheduler`).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from math import inf
from typing import Any

from trimtab_api.errors import UserError

from trimtab.checkpoint.random_state import RandomState
from trimtab.data.batches import Batches
from trimtab.data.checks import DataChecks
from trimtab.data.own_loop import OwnLoop
from trimtab.data.owners import Control, LoopEvents, People, TrialRunner
from trimtab.data.position import Epochs, Position
from trimtab.data.replay import Replay
from trimtab.data.resumption import Resumption, Start
from trimtab.data.sharded_loader import Loaders, ShardedLoader
from trimtab.data.trial_scheduler import TrialScheduler
from trimtab.plan.plan import Plan
from trimtab.transport.group import Group

#: Samples or batches of an epoch that are left out, as a share of all, without a line about it.
_LEFT_OUT_IN_SILENCE = 0.05


class Loops:
    """Every loop of one session that has begun and not ended."""

    def __init__(
        self,
        loaders: Loaders,
        control: Control,
        people: People,
        events: LoopEvents,
        *,
        alternating_optimizers: bool = False,
    ) -> None:
        """Know of no loop yet.

        Args:
            loaders: Gives this rank's share of each loader.
            control: Knows whether trials are wanted.
            people: Takes lines for people.
            events: Is told where loops come to.
            alternating_optimizers: Whether a batch may be of several steps, so that there are no trials.
        """
        self._loaders, self._people, self._events = loaders, people, events
        self._trials = TrialScheduler(control, people, events, alternating_optimizers=alternating_optimizers)
        self._checks = DataChecks(people.warn)
        self._loops: list[Replay] = []
        """The last is the one that gave the present batch."""
        self._num_begun = 0
        self._num_trained_in = 0
        """Loops of which steps were made: as many on each rank, also where one loops alone, as for an evaluation."""
        self._begun_since_step: Counter[str] = Counter()
        self.epochs = Epochs()
        self._num_repeated = 0
        """Loops of an earlier run that the script repeats, unless it counts its epochs by `epochs`."""
        self.has_evaluated_share = False
        """True if the last loop gave a share of the data to no training, and ranks have added nothing up since."""
        self._resumption = Resumption(people)
        self.own = OwnLoop(self._loops, self._trials, events)

    def batches(self, loader: Iterable[Any], *, sharded: bool) -> Batches:
        """Return the rank's share of ``loader``, trials included: an epoch for each time that it is iterated."""
        if isinstance(loader, Batches):  # shared already
            return loader
        share, num_trained = self._loaders.shard(loader, sharded=sharded), 0

        def begin() -> Generator[Any]:
            nonlocal share, num_trained
            whole = self._loaders.shard(loader, sharded=sharded)  # the loader may have changed since the last epoch
            start = self._resumption.begin(whole)
            share, num_trained = start.share, start.num_trained
            try:
                yield from self._given(start)
            finally:
                share, num_trained = whole, 0

        def num_batches() -> int | None:
            num_left = self._resumption.num_left(share)
            return None if num_left is None else num_left - num_trained

        return Batches(begin, num_batches, loader)

    def _given(self, start: Start) -> Generator[Any]:
        share = start.share
        of_kind = f"{share.name} {share.num_batches}"
        number = self._num_trained_in + self._begun_since_step[of_kind]
        generators = RandomState.capture()  # where the loop goes on: as they have been restored
        if start.began is not None:
            start.began.restore()
        source = share.epoch(number)
        self._people.say(f"loader: {share.how}")
        self._warn_of_what_is_left_out(share)
        replay = Replay(source, share.num_batches, number, start.began or generators, share.drawing)
        replay.skip(start.num_trained)
        if start.has_trained:  # a loader draws its seed when it begins, which the earlier run did long before
            generators.restore()
        self._num_begun += 1
        if start.has_trained:
            replay.count()
            self._num_trained_in += 1
        else:
            self._begun_since_step[of_kind] += 1  # a loop that is left early has had its epoch: the next shuffles anew
        look = self._checks.loop_begun(share.name, is_alike=share.is_alike)
        self._loops.append(replay)
        try:
            with contextlib.closing(self._epoch_of(replay)) as epoch:
                for batch in epoch:
                    look.drawn = look.drawn or share.look
                    self._loops.remove(replay)
                    self._loops.append(replay)
                    yield batch
        except GeneratorExit:  # the loop was left
            self._ended(replay, self._events.on_loop_left)
            raise
        else:
            self._warn_of_what_is_left_out(share)
            if replay.is_empty and not start.has_trained:
                self._refuse_if_used_up(share)
                self._people.warn(f"this loop has no batches{share.why_empty}", on_each=not share.is_alike)
            self._ended(replay, self._events.on_epoch_end)
        finally:
            self._loops.remove(replay)
            self._trials.loop_ended(replay)

    def _warn_of_what_is_left_out(self, share: ShardedLoader) -> None:
        left_out = share.left_out
        if left_out is not None and left_out.share > _LEFT_OUT_IN_SILENCE:
            self._people.warn(f"loader: {left_out}")

    def _refuse_if_used_up(self, share: ShardedLoader) -> None:
        """Raise `UserError` for a second loop over an iterator, which gives its batches once."""
        if share.is_iterator:
            raise UserError(
                "is an iterator without batches left; pass something that can be iterated in each epoch, such"
                " as a list or a DataLoader, or create the iterator again",
                field="loader",
                value=share.name,
            )

    def _ended(self, replay: Replay, ended: Callable[[], None]) -> None:
        self.has_evaluated_share = not replay.has_stepped and not replay.is_empty and self._loaders.num_ranks > 1
        if replay.has_stepped:  # else it is no loop of training, and others may be in the middle of a round
            ended()

    def reduced_over_ranks(self) -> None:
        """Note that ranks have added something up since the last loop, or that its share was told of."""
        self.has_evaluated_share = False

    def _epoch_of(self, replay: Replay) -> Generator[Any]:
        """Yield each batch, and before it the trials that were asked for."""
        while True:
            self._events.on_next_batch(is_outermost=self._loops[0] is replay)
            yield from self._trials.run(replay, self._loops)
            try:
                batch = replay.next()
            except StopIteration:
                return
            yield batch

    def stepped(self, *, in_trial: bool) -> None:
        """Note that the script has taken a step with the batches that it was given since the last."""
        self._trials.stepped(self._loops, have_begun=self.have_begun)
        if not in_trial:
            self._resumption.stepped()
            self._warn_of_repeated_epochs()
            self.epochs.stepped()
            self._count_loops()
        for loop in self._loops:
            loop.stepped(in_trial=in_trial)

    def _warn_of_repeated_epochs(self) -> None:
        if self._num_repeated and self._loops and not self.epochs.are_counted:
            self._people.warn(
                f"resuming: {self._num_repeated} loops over session.batches were over; a script that counts epochs by"
                " itself trains as many again; write `for epoch in session.epochs(n)`"
            )
        self._num_repeated = 0

    def _count_loops(self) -> None:
        """Count the loops of whose batches a step was made that stays."""
        first = [loop for loop in self._loops if loop.num_since_step and not loop.is_counted]
        for loop in first:
            loop.count()
        self._num_trained_in += bool(first)
        self._begun_since_step.clear()

    @property
    def has_news(self) -> bool:
        """True if a loop was begun that the other ranks have not been told of."""
        return self._checks.have_news

    def exchanged(self, norm: float) -> None:
        """Note that a training step was exchanged, of gradients with this norm on this rank."""
        if not self._num_begun:
            self._checks.exchanged(norm)

    def compare(self, group: Group) -> str:
        """Tell all ranks of the loops that were begun, and warn of what does not fit; every rank calls it together.

        Returns:
            Says that all ranks train on the same data; empty where that is not known.
        """
        return self._checks.compare(group, by_gradients=not self._num_begun)

    @property
    def have_begun(self) -> bool:
        """True if any loop has begun."""
        return bool(self._num_begun or self._loops)

    @property
    def num_steps_left(self) -> int:
        """Steps left in the epoch; 0 where no trial can be run."""
        return self._trials.num_steps_left(self._loops)

    @property
    def num_steps(self) -> float:
        """Steps of the present loop, whose end is known to every rank; 0: there is none, infinity: not known."""
        loop = next((loop for loop in reversed(self._loops) if loop is not self.own.replay or self.own.has_turns), None)
        if loop is None:
            return 0
        return inf if loop.num_batches is None else loop.num_batches // loop.num_a_step

    def agree_on_trials(self, group: Group, trials: TrialRunner, plans: Sequence[Plan], iterations: int) -> bool:
        """Return whether trials begin with the next batch; every rank calls it together, and hears the same."""
        return self._trials.agree(group, self._loops, trials, plans, iterations)

    def close(self) -> None:
        """Let no trial begin any more."""
        self._trials.close()

    def position(self, steps: int) -> Position:
        """Return where training is after so many steps: in the outermost loop, if in any."""
        loop = self._outermost
        over = self.epochs.num_over(in_loop=loop is not None)
        if loop is None:
            return Position(steps, over, self._num_trained_in, ranks=self._loaders.num_ranks)
        drawing, batches = loop.drawing, loop.num_trained
        return Position(
            steps,
            over,
            loop.number,
            batches,
            loop.num_batches,
            drawing.ranks,
            drawing.order,
            drawing.drawn(batches, loop.num_batches),
            drawing.before,
            drawing.total if drawing.order else None,
        )

    @property
    def is_under_way(self) -> bool:
        """True if a loop is under way that tells when it goes on (`LoopEvents.on_next_batch`)."""
        return self.own.has_turns or self._outermost is not None

    @property
    def _outermost(self) -> Replay | None:
        """The first of the loops over `batches`."""
        return next((loop for loop in self._loops if loop is not self.own.replay), None)

    @property
    def generators_at_begin(self) -> RandomState | None:
        """The random generators as they were when the outermost loop began; None where none is under way."""
        loop = self._outermost
        return None if loop is None else loop.began

    def resume(self, position: Position, began: RandomState | None = None, *, script_knows: bool = True) -> None:
        """Have the next loop go on where an earlier run was.

        Args:
            position: Where.
            began: `generators_at_begin` of that run, by which the loop's loader draws as it did; None: not known.
            script_knows: Whether the script has loaded it, and may count its epochs from there.
        """
        self._num_trained_in = position.loops
        self._num_repeated = 0 if script_knows else position.loops
        self._resumption.go_on(position, began)
        self.epochs.resume(position.epochs)

    def state_dict(self) -> dict[str, Any]:
        """Return how many loops have trained, and were begun since: it decides how each shuffles."""
        return {"trained_in": self._num_trained_in, "begun_since_step": dict(self._begun_since_step)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self._num_trained_in = state["trained_in"]
        self._begun_since_step = Counter(state["begun_since_step"])
