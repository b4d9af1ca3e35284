"""The loops over `Session.batches`: which one trains, and trials in it.

A script may loop over validation data inside its training loop, leave a loop early, or hold on to its iterator. Trials
belong to the loop whose batch the step was made of, and begin only where every rank can run them.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, Protocol

from trimtab_api.errors import UserError

from trimtab.checkpoint.random_state import RandomState
from trimtab.data.batches import Batches
from trimtab.data.checks import FirstGradients, Look, mistakes, problem_of
from trimtab.data.position import Epochs, Position
from trimtab.data.replay import Replay
from trimtab.data.sharded_loader import Loaders, ShardedLoader
from trimtab.plan.plan import Plan
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import Read, gather_json, gather_numbers, json_of


@dataclass(frozen=True)
class _News:
    """What ranks tell each other of their data."""

    looks: list[Look]
    norms: list[float]
    """Of the first gradients; empty where a loop over `batches` was begun."""


_NEWS: Read[_News] = json_of(_News)
#: What a rank answers when all are asked for trials.
_CAN_TRY, _TOO_FEW_BATCHES, _CANNOT_REPLAY = range(3)

_SEVERAL_LOOPS = (
    "steps are made of batches of several loops over session.batches, as by zip(); loop over one loader of them all"
)


#: Steps after which a script that has asked for no batches is taken not to.
_STEPS_WITHOUT_LOOP = 3
_INSTEAD = "plans are chosen by what is measured and predicted"
_NO_TRIALS = f"no trials, since batches come neither from session.batches nor by session.trials; {_INSTEAD}"
#: Samples or batches of an epoch that are left out, as a share of all, without a line about it.
_LEFT_OUT_IN_SILENCE = 0.05
#: Loops that were begun and not told of, kept.
_MOST_LOOKS = 100
_NO_TRIALS_OF_TURNS = f"no trials, since optimizers take turns, and a batch is of several steps; {_INSTEAD}"


class Control(Protocol):
    """What knows the controller: `trimtab.session.announcements.ControlMessages`."""

    @property
    def can_run_trials(self) -> bool:
        """Whether the controller asks for trials where they can be run."""
        ...


class Warn(Protocol):
    """What tells people of a mistake, also where one process trains: `trimtab.session.rank_ops.RankOps`."""

    def __call__(self, what: str, /, *, on_each: bool = False) -> None:
        """Print a line of rank 0's, or with ``on_each`` of this rank, whichever it is."""
        ...


class TrialRunner(Protocol):
    """What runs trials in a loop: `trimtab.session.trials.TrialRunner`."""

    def run(
        self, replay: Replay, others: list[Replay], plans: list[Plan], iterations: int
    ) -> Generator[Any, None, str | None]:
        """Batches of ``replay`` for ``iterations`` steps under each plan, while ``others`` are under way as well.

        Returns why no further trials can be run, on every rank the same; None where they can.
        """
        ...


class Loops:
    """Every loop of one session that has begun and not ended."""

    def __init__(
        self,
        loaders: Loaders,
        control: Control,
        say: Callable[[str], None],
        warn: Warn,
        trials_ended: Callable[[bool], None],
        on_next_batch: Callable[[], None],
        on_epoch_end: Callable[[], None],
        loop_left: Callable[[], None],
        *,
        alternating_optimizers: bool = False,
    ) -> None:
        """``control`` knows whether trials are wanted; ``say`` and ``warn`` take a line for people.

        ``trials_ended`` is called after trials: whether they had begun. ``on_next_batch`` is called before each
        batch of a loop, and before its end. ``on_epoch_end`` is called when a loop of which steps were made has ended,
        on every rank at the same step; ``loop_left``, when one was left, which an exception does on one rank alone.
        ``alternating_optimizers``: a batch may be of several steps, so there are no trials.
        """
        self._alternating_optimizers = alternating_optimizers
        self._loaders, self._control, self._say, self._warn = loaders, control, say, warn
        self._trials_ended, self._batch_wanted, self._epoch_ended = trials_ended, on_next_batch, on_epoch_end
        self._loop_left = loop_left
        self._loops: list[Replay] = []
        """The last is the one that gave the present batch."""
        self._num_begun = 0
        self._num_trained_in = 0
        """Loops of which steps were made: as many on each rank, also where one loops alone, as for an evaluation."""
        self._begun_since_step: Counter[str] = Counter()
        self._looks: list[Look] = []
        """The loops that were begun since ranks told each other of theirs."""
        self._first_gradients = FirstGradients()
        self.epochs = Epochs()
        self.has_evaluated_share = False
        """Whether the last loop gave a share of the data to no training, and ranks have not added anything up since."""
        self._resumed: Position | None = None
        """Where the next loop goes on."""
        self._request: tuple[Replay, TrialRunner, list[Plan], int] | None = None
        """Trials that all ranks have agreed on, and the loop whose batches they replay."""
        self._unseen: Replay | None = None
        """Stands for a loop that draws its batches by itself and calls `trials`."""
        self._num_steps_unseen = 0
        """Steps without any loop."""
        self._never_tries = False
        self._mixes_loops = False
        """Whether a step was made of the batches of several loops, which could not all be given again."""

    def batches(self, loader: Iterable[Any], *, sharded: bool) -> Batches:
        """This rank's share of ``loader``, trials included: an epoch for each time that it is iterated."""
        if isinstance(loader, Batches):  # shared already
            return loader
        share = self._loaders.shard(loader, sharded=sharded)
        num_left_out = 0
        """Batches of the present epoch that an earlier run trained on."""

        def begin() -> Generator[Any]:
            nonlocal share, num_left_out
            share = self._loaders.shard(loader, sharded=sharded)  # the loader may have changed since the last epoch
            num_left_out = self._num_trained(share)
            yield from self._given(share, num_left_out)
            num_left_out = 0

        def num_batches() -> int | None:
            present = num_left_out or self._num_resumed(share)
            return None if share.num_batches is None else share.num_batches - present

        return Batches(begin, num_batches, loader)

    def _num_resumed(self, share: ShardedLoader) -> int:
        """Batches that an earlier run has trained on, if ``share`` is what the next loop is over."""
        before = self._resumed
        return before.batches if before is not None and share.num_batches == before.of_batches else 0

    def _num_trained(self, share: ShardedLoader) -> int:
        """Batches of the loop that begins that an earlier run has trained on."""
        num_resumed, before, self._resumed = self._num_resumed(share), self._resumed, None
        if num_resumed:
            self._say(f"resuming: this loop goes on after {num_resumed} batches, which are drawn and left out")
        elif before is not None and before.batches:
            had = "a loop of another length" if before.of_batches is None else f"one of {before.of_batches} batches"
            self._say(f"resuming: this loop begins anew, since the earlier run was in {had}")
        return num_resumed

    def _given(self, share: ShardedLoader, num_trained: int) -> Generator[Any]:
        of_kind = f"{share.name} {share.num_batches}"
        number = self._num_trained_in + self._begun_since_step[of_kind]
        generators = RandomState.capture() if num_trained else None  # as the script has restored them
        source = share.epoch(number)
        self._say(f"loader: {share.how}")
        self._warn_of_what_is_left_out(share)
        replay = Replay(source, share.num_batches, number)
        replay.skip(num_trained)
        if generators is not None:  # a loader draws its seed when it begins, which the earlier run did long before
            generators.restore()
        self._num_begun += 1
        if num_trained:  # the earlier run made steps of it, and perhaps none is left
            replay.is_counted = True
            self._num_trained_in += 1
        else:
            self._begun_since_step[of_kind] += 1  # a loop that is left early has had its epoch: the next shuffles anew
        look = Look(share.name)
        if share.is_alike:  # else each rank loops over data of its own, as often as it likes
            self._looks = [*self._looks[-_MOST_LOOKS:], look]
        self._loops.append(replay)
        try:
            with contextlib.closing(self._epoch_of(replay)) as epoch:
                for batch in epoch:
                    look.drawn = look.drawn or share.look
                    self._loops.remove(replay)
                    self._loops.append(replay)
                    yield batch
        except GeneratorExit:  # the loop was left
            self._ended(replay, self._loop_left)
            raise
        else:
            self._warn_of_what_is_left_out(share)
            if replay.is_empty:
                self._refuse_if_used_up(share)
                self._warn(f"this loop has no batches{share.why_empty}", on_each=not share.is_alike)
            self._ended(replay, self._epoch_ended)
        finally:
            self._loops.remove(replay)
            if self._request is not None and self._request[0] is replay:
                self._request = None  # the loop was left before they began
                self._trials_ended(False)

    def _warn_of_what_is_left_out(self, share: ShardedLoader) -> None:
        left_out = share.left_out
        if left_out is not None and left_out.share > _LEFT_OUT_IN_SILENCE:
            self._warn(f"loader: {left_out}")

    def _refuse_if_used_up(self, share: ShardedLoader) -> None:
        """A generator, or another iterator, gives its batches once: a second loop over it trains on nothing."""
        if share.is_iterator:
            raise UserError(
                "is an iterator that has no batches left; hand over what can be iterated in each epoch, such as a list"
                " or a DataLoader, or make the iterator anew",
                field="loader",
                value=share.name,
            )

    def _ended(self, replay: Replay, ended: Callable[[], None]) -> None:
        self.has_evaluated_share = not replay.has_stepped and not replay.is_empty and self._loaders.are_shared
        if replay.has_stepped:  # else it is no loop of training, and others may be in the middle of a round
            ended()

    def trials(self) -> Iterator[None]:
        """Those that are due, in a loop that draws its batches by itself: one item for each step to take.

        Raises `UserError` where a loop over `batches` is under way.
        """
        if any(loop is not self._unseen for loop in self._loops):
            raise UserError(
                "is called in a loop over session.batches, which runs its trials by itself; leave the call out",
                field="session.trials",
            )
        if self._unseen is None:
            self._unseen = Replay(itertools.repeat(None), sys.maxsize)  # what it gives says only: take a step
            self._loops.append(self._unseen)
        yield from self._trials_of(self._unseen)
        self._unseen.next()

    def _trials_of(self, replay: Replay) -> Iterator[Any]:
        """The batches of the trials that were asked for in this loop."""
        if self._request is not None and self._request[0] is replay:
            _, trials, plans, iterations = self._request
            self._request = None
            others = [other for other in self._loops if other is not replay]
            why_not = yield from trials.run(replay, others, plans, iterations)
            if why_not is not None:
                self._never_tries = True
                self._say(f"no further trials: {why_not}; {_INSTEAD}")
            self._trials_ended(True)

    def _epoch_of(self, replay: Replay) -> Generator[Any]:
        """Each batch, and before it the trials that were asked for."""
        while True:
            self._batch_wanted()
            yield from self._trials_of(replay)
            try:
                batch = replay.next()
            except StopIteration:
                return
            yield batch

    def stepped(self, *, in_trial: bool) -> None:
        """The script has taken a step with the batches that it was given since the last."""
        if self._alternating_optimizers and self._control.can_run_trials:
            self._say(_NO_TRIALS_OF_TURNS)
        elif not self._loops and not self._num_begun and self._control.can_run_trials:
            self._num_steps_unseen += 1
            if self._num_steps_unseen == _STEPS_WITHOUT_LOOP:
                self._say(_NO_TRIALS)
        if not in_trial:
            self.epochs.stepped()
            self._count_loops()
        self._mixes_loops |= sum(loop.num_since_step > 0 for loop in self._loops) > 1
        for loop in self._loops:
            loop.stepped(in_trial=in_trial)

    def _count_loops(self) -> None:
        """A step stays that was made of the batches since the last one."""
        first = [loop for loop in self._loops if loop.num_since_step and not loop.is_counted]
        for loop in first:
            loop.is_counted = True
        self._num_trained_in += bool(first)
        self._begun_since_step.clear()

    @property
    def has_news(self) -> bool:
        """Whether a loop was begun that the other ranks have not been told of."""
        return bool(self._looks) or self._first_gradients.is_due

    def exchanged(self, norm: float) -> None:
        """A training step was exchanged, of gradients with this norm on this rank."""
        if not self._num_begun:
            self._first_gradients.add(norm)

    def compare(self, group: Group) -> str:
        """Tell all ranks of the loops that were begun, and warn of what does not fit; every rank calls it together.

        Returns that all ranks train on the same data; empty where that is not known.
        """
        looks, self._looks = self._looks, []
        own = _News(looks, [] if self._num_begun else self._first_gradients.take())
        told = gather_json(group, asdict(own), _NEWS)
        for mistake in mistakes([each.looks for each in told]):
            self._warn(mistake)
        if problem := problem_of([each.norms for each in told]):
            self._warn(problem)
        return problem

    @property
    def have_begun(self) -> bool:
        """Whether any loop has."""
        return bool(self._num_begun or self._loops)

    @property
    def num_steps_left(self) -> int:
        """Steps left in the epoch; 0 where no trial can be run."""
        if not self._loops or self._never_tries or self._alternating_optimizers:
            return 0
        return self._loops[-1].num_left // self._loops[-1].num_a_step

    @property
    def num_steps(self) -> float:
        """Steps of the present loop over `batches`, whose end is known to every rank; 0: none, infinity: not known."""
        loop = next((loop for loop in reversed(self._loops) if loop is not self._unseen), None)
        if loop is None:
            return 0
        return inf if loop.num_batches is None else loop.num_batches // loop.num_a_step

    def agree_on_trials(self, group: Group, trials: TrialRunner, plans: list[Plan], iterations: int) -> bool:
        """Whether trials begin with the next batch; every rank calls it together, and hears the same.

        They do where every rank's loop can give as many batches, and give them again.
        """
        loop = self._loops[-1] if self._loops and not self._alternating_optimizers else None
        can, why_not = _TOO_FEW_BATCHES, None
        if loop is not None and 0 < iterations * loop.num_a_step <= loop.num_left:
            why_not = _SEVERAL_LOOPS if self._mixes_loops else loop.why_not_replayed
            can = _CAN_TRY if why_not is None else _CANNOT_REPLAY
        answers = gather_numbers(group, can)
        if why_not is not None:
            print(f"trimtab: rank {group.rank}: no trials: {why_not}", file=sys.stderr, flush=True)
        self._never_tries |= _CANNOT_REPLAY in answers
        if loop is None or set(answers) != {_CAN_TRY}:
            return False
        self._request = (loop, trials, plans, iterations)
        return True

    def close(self) -> None:
        """No trial begins any more."""
        self._request = None

    def position(self, steps: int) -> Position:
        """Where training is after so many steps: in the outermost loop, if in any."""
        loop = next((loop for loop in self._loops if loop is not self._unseen), None)
        over = self.epochs.num_over(in_loop=loop is not None)
        if loop is None:
            return Position(steps, over, self._num_trained_in)
        return Position(steps, over, loop.number, loop.num_trained, loop.num_batches)

    def resume(self, position: Position) -> None:
        """Have the next loop go on where an earlier run was."""
        self._num_trained_in, self._resumed = position.loops, position
        self.epochs.resume(position.epochs)

    def state_dict(self) -> dict[str, Any]:
        """How many loops have trained, and were begun since: it decides how each shuffles."""
        return {"trained_in": self._num_trained_in, "begun_since_step": dict(self._begun_since_step)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._num_trained_in = state["trained_in"]
        self._begun_since_step = Counter(state["begun_since_step"])
