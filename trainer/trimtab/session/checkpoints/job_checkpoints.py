"""Writes a job's checkpoints beside its training, and goes on from the newest whole one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from trimtab_api.errors import UserError

from trimtab.checkpoint.background import BackgroundWriter
from trimtab.checkpoint.manifest import Manifest, new_folder
from trimtab.checkpoint.settings import CheckpointSettings
from trimtab.checkpoint.shards import FORMAT, copied
from trimtab.checkpoint.state_tree import NotPlainError, take_apart
from trimtab.run_files.recorder import Recorder
from trimtab.session.checkpoints.job_state import JobState, model_fingerprint
from trimtab.session.checkpoints.restoring import Restoring
from trimtab.session.checkpoints.tiers import Tier
from trimtab.session.checkpoints.write_progress import WriteProgress
from trimtab.session.checkpoints.writing import Writing
from trimtab.session.rank_ops import RankOps
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import Read, broadcast_json, gather_numbers, json_of

#: Seconds for which the end of a process waits for what is being written.
_END_SECONDS = 30.0
#: Seconds after SIGTERM at which a process ends although it has come to no further step.
_TERMINATION_SECONDS = 20.0
_TEXT: Read[str] = json_of(str)


#: A rank asks for nothing. Other wishes are the number of a tier, from 1, or one more: all of them, and the end.
_NOTHING = 0


class Agreed(NamedTuple):
    """A checkpoint that all ranks are about to write."""

    folder: str
    tiers: list[Tier]
    is_last: bool


class Checkpointing:
    """The checkpoints of one session; all ranks write each together."""

    def __init__(
        self,
        settings: CheckpointSettings,
        tiers: Sequence[Tier],
        state: JobState,
        group: Group | None,
        ranks: RankOps,
        recorder: Recorder,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write nothing yet.

        Args:
            settings: What belongs to no place.
            tiers: The places, the most durable one last.
            state: What is written.
            group: The ranks; None where one process trains alone.
            ranks: Prints lines for people.
            recorder: Takes a line about each checkpoint.
            now: Seconds of a clock that never goes back.
        """
        self._settings, self._tiers, self._state, self._group, self._ranks = settings, tiers, state, group, ranks
        self._now, self._recorder, self._writer = now, recorder, BackgroundWriter()
        self._progress = WriteProgress(self._writer, ranks, recorder, now)
        self._model = model_fingerprint(state.model)
        for tier in tiers:
            tier.begin(now(), state.steps.num)
        self._is_ending = self._is_closed = False
        self._agreed: Agreed | None = None
        """The checkpoint that is to be written."""
        self._under_way: tuple[int, float, bool] | None = None
        """Step of the checkpoint that is being written, the seconds for which training waited for its copy, and whether
        memory alone gets it."""
        self._before_termination: Any = None
        if settings.on_termination and threading.current_thread() is threading.main_thread():
            self._before_termination = signal.signal(signal.SIGTERM, self._terminate) or signal.SIG_DFL

    def restore(self) -> bool:
        """Go on from the newest whole checkpoint, if there is any; every rank calls it before the first step.

        Raises:
            UserError: The newest is of another model; raised on every rank.
        """
        names = self._settings.job, self._settings.from_job
        has_restored = Restoring(self._tiers, self._state, self._model, names, self._group, self._ranks).restore()
        for tier in self._tiers if has_restored else ():
            tier.begin(self._now(), self._state.steps.num)
        return has_restored

    # Writing ------------------------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """True if this rank asks all to write a checkpoint after the step under way; any thread may read it."""
        return self._wish(self._state.steps.num + 1) != _NOTHING

    def _wish(self, step: int) -> int:
        """Return what this rank asks for after ``step`` steps."""
        if self._is_ending:
            return self._wish_to_end
        if not self._ranks.is_main or self._writer.is_busy:
            return _NOTHING
        return self._tier_due(step)

    def _tier_due(self, step: int) -> int:
        """Return the number of the most durable place for which a checkpoint is due; else nothing."""
        now = self._now()
        due = (
            number for number, tier in enumerate(self._tiers, 1) if not tier.has_leftovers and tier.is_due(now, step)
        )
        return max(due, default=_NOTHING)

    @property
    def _wish_to_end(self) -> int:
        return len(self._tiers) + 1

    def follow(self) -> None:
        """Agree on a checkpoint if a rank asks for one; every rank calls it together, between two steps.

        It is written when the script's loop goes on, so that it holds what the script does after a step.
        """
        wish = self._wish(self._state.steps.num)
        wish = wish if self._group is None else max(gather_numbers(self._group, wish))
        if wish == _NOTHING:
            return
        tiers = list(self._tiers) if wish == self._wish_to_end else [self._tiers[wish - 1]]
        self._agreed = Agreed(self._agree(tiers), tiers, is_last=wish == self._wish_to_end)
        if not self._state.loops.is_under_way:
            self.write_agreed()

    def write_agreed(self) -> None:
        """Write the checkpoint that all ranks have agreed on, if any; then end, where SIGTERM has asked for that."""
        self._record()
        self._remove_leftovers()
        if self._agreed is not None:
            agreed, self._agreed = self._agreed, None
            self._write(agreed.folder, agreed.tiers, wait=agreed.is_last)
            if self._is_ending:
                self._end()

    def _remove_leftovers(self) -> None:
        """Begin to remove what a failed write has left, when the next is due: by then no rank writes any more."""
        if not self._ranks.is_main or self._writer.is_busy or self._agreed is not None:
            return
        now, step = self._now(), self._state.steps.num
        full = next((tier for tier in self._tiers if tier.has_leftovers and tier.is_due(now, step)), None)
        if full is not None:
            self._writer.begin(lambda wait, pace: full.remove_leftovers())

    def save(self, *, wait: bool) -> None:
        """Write a checkpoint of now, to the most durable place; every rank calls it together, between two steps.

        Args:
            wait: Whether to return once it is whole, or cannot be written; else as soon as its tensors are copied.
        """
        tiers = [self._tiers[-1]]
        self._write(self._agree(tiers), tiers, wait=wait)

    def _agree(self, tiers: Sequence[Tier]) -> str:
        """Have nothing under way, and return the folder of the next checkpoint, the same on every rank."""
        for tier in tiers:
            tier.begin(self._now(), self._state.steps.num)
        self._state.settle()
        folder = new_folder(self._state.steps.num)
        return folder if self._group is None else broadcast_json(self._group, folder, _TEXT)

    def _write(self, folder: str, tiers: Sequence[Tier], *, wait: bool) -> None:
        if wait:
            self._writer.wait(_END_SECONDS)
        self._record()
        state, step, began = self._state, self._state.steps.num, self._now()
        if self._writer.is_busy:  # on this rank alone: rank 0 finds its part missing, and says so
            self._ranks.warn(f"the checkpoint of step {step} lacks a part: the store is too slow", on_each=True)
            return
        try:
            own = copied(take_apart(state.own()))
            shared = copied(take_apart(state.shared())) if self._ranks.is_main else None
        except NotPlainError as error:
            raise UserError(f"cannot be kept in a checkpoint: {error}", field="extra_state") from None
        manifest = Manifest(FORMAT, step, self._ranks.num_ranks, self._settings.job, self._model, (), 0.0, 0)
        writing = Writing(folder, manifest, self._ranks.rank, own, shared)
        self._under_way = step, self._now() - began, all(tier.is_memory for tier in tiers)
        self._progress.begin(step, writing.num_bytes * len(tiers))
        self._writer.begin(lambda pause, pace: writing.write(tiers, pause, pace))
        if wait:
            self._writer.wait(_END_SECONDS)
            self._record()

    def _record(self) -> None:
        """Record the checkpoint whose write has ended, if any, and say why it was not written, where it was not."""
        if self._under_way is None:
            return
        if self._writer.is_busy:
            self._progress.tell(delays_next=self._ranks.is_main and self._tier_due(self._state.steps.num) != _NOTHING)
            return
        (step, pause, is_in_memory), self._under_way = self._under_way, None
        if self._writer.problem:
            self._ranks.warn(f"checkpoint of step {step}: {self._writer.problem}; training goes on", on_each=True)
        self._recorder.metric(
            {
                "event": "checkpoint",
                "step": step,
                "pause_seconds": round(pause, 6),
                "seconds": round(self._writer.seconds, 6),
                "bytes": self._writer.num_bytes,
                "problem": self._writer.problem or "",
                "in_memory": is_in_memory,
            }
        )

    # The end ------------------------------------------------------------------------------------------------------

    def _terminate(self, *_: object) -> None:
        """Have all ranks write a checkpoint after the present step, and then end; SIGTERM calls it.

        A second signal ends the process at once. It comes by itself where no step has ended for a while.
        """
        if self._is_ending:
            self._end()
            return
        self._is_ending = True
        timer = threading.Timer(_TERMINATION_SECONDS, os.kill, (os.getpid(), signal.SIGTERM))
        timer.daemon = True
        timer.start()

    def _end(self) -> None:
        """End as SIGTERM would have ended this process without a checkpoint."""
        signal.signal(signal.SIGTERM, self._before_termination)
        os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None:
        """Wait for what is being written, for a bounded time; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._writer.close(_END_SECONDS):
            self._ranks.warn(f"the last checkpoint was not finished within {_END_SECONDS:g} s", on_each=True)
        self._record()
        for tier in self._tiers:
            tier.close()
        if self._before_termination is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before_termination)
