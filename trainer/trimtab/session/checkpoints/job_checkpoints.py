"""Writes a job's checkpoints beside its training, and goes on from the newest whole one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from trimtab_api.errors import UserError

from trimtab.checkpoint.background import BackgroundWriter, Wait
from trimtab.checkpoint.manifest import Manifest, finish, new_folder, prune, read_manifest, saved
from trimtab.checkpoint.settings import CheckpointSettings
from trimtab.checkpoint.shards import FORMAT, DamagedError, FileRecord, copied, read_part, write_part
from trimtab.checkpoint.state_tree import NotPlainError, take_apart
from trimtab.checkpoint.store import Store
from trimtab.run_files.recorder import Recorder
from trimtab.session.checkpoints.job_state import JobState, model_fingerprint
from trimtab.session.rank_ops import RankOps
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import (
    Read,
    broadcast_json,
    gather_json,
    gather_numbers,
    json_of,
    raise_together,
)

#: Seconds for which the end of a process waits for what is being written.
_END_SECONDS = 30.0
#: Seconds after SIGTERM at which a process ends although it has come to no further step.
_TERMINATION_SECONDS = 20.0
_TEXT: Read[str] = json_of(str)
_FIELD = "spec.checkpoint.path"


class _Wish(IntEnum):
    """What a rank asks of all when a message was announced."""

    NOTHING = 0
    SAVE = 1
    SAVE_AND_END = 2


class _Found(NamedTuple):
    """What a rank has read of a checkpoint."""

    refusal: str = ""
    """Why it is not whole."""
    mistake: str = ""
    """Why the user must mend something before it can be used."""
    shared: Any = None
    parts: Mapping[int, Any] = MappingProxyType({})
    """By rank that wrote it."""
    num_ranks: int = 0


class Checkpointing:
    """The checkpoints of one session; all ranks write each together."""

    def __init__(
        self,
        settings: CheckpointSettings,
        store: Store,
        state: JobState,
        group: Group | None,
        ranks: RankOps,
        recorder: Recorder,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write nothing yet.

        Args:
            settings: Where and how often.
            store: The place.
            state: What is written.
            group: The ranks; None where one process trains alone.
            ranks: Prints lines for people.
            recorder: Takes a line about each checkpoint.
            now: Seconds of a clock that never goes back.
        """
        self._settings, self._store, self._state, self._group, self._ranks = settings, store, state, group, ranks
        self._now, self._recorder, self._writer = now, recorder, BackgroundWriter()
        self._model = model_fingerprint(state.model)
        self._last_at, self._last_step = now(), state.steps.num
        self._is_ending = self._is_closed = False
        self._agreed: tuple[str, bool] | None = None
        """Folder of the checkpoint that is to be written, and whether it is the last."""
        self._under_way: tuple[int, float] | None = None
        """Step of the checkpoint that is being written, and the seconds for which training waited for its copy."""
        self._before_termination: Any = None
        if settings.on_termination and threading.current_thread() is threading.main_thread():
            self._before_termination = signal.signal(signal.SIGTERM, self._terminate) or signal.SIG_DFL

    # Going on -----------------------------------------------------------------------------------------------------

    def restore(self) -> bool:
        """Go on from the newest whole checkpoint, if there is any; every rank calls it before the first step.

        Raises:
            UserError: The newest is of another model; raised on every rank.
        """
        for folder in self._folders():
            found = self._read(folder)
            refusals = [found.refusal] if self._group is None else gather_json(self._group, found.refusal, _TEXT)
            if told := next((each for each in refusals if each), ""):
                self._ranks.warn(f"checkpoint refused: {told}; the one before it is used, if there is any")
                continue
            self._raise_together(found.mistake)
            is_same = self._state.restore(found.shared, found.parts, found.num_ranks)
            others = "" if is_same else f", which {found.num_ranks} ranks wrote: their residuals are shared out"
            self._last_at, self._last_step = self._now(), self._state.steps.num
            where = f"step {self._last_step} in {self._settings.where}"
            self._ranks.warn(f"going on from the checkpoint of {where}{others}")
            return True
        return False

    def _folders(self) -> list[str]:
        """Return the folders of checkpoints with a manifest, the newest first, as rank 0 sees them."""
        found, problem = list[str](), ""
        if self._ranks.is_main:
            try:
                found = [each.folder for each in saved(self._store, self._ranks.warn)]
            except OSError as error:
                problem = f"cannot be read ({error.strerror or error}); make it readable, or name another path"
        self._raise_together(problem)
        return found if self._group is None else broadcast_json(self._group, found, json_of(list[str]))

    def _raise_together(self, problem: str) -> None:
        """Raise `UserError` on every rank if the checkpoints cannot be used for a reason that the user must mend."""
        mistake = UserError(problem, field=_FIELD, value=self._settings.where) if problem else None
        if self._group is not None:
            raise_together(self._group, mistake, field=_FIELD)
        elif mistake is not None:
            raise mistake

    def _read(self, folder: str) -> _Found:
        """Return what this rank needs of a checkpoint, or what is wrong with it; nothing has changed by then."""
        try:
            manifest = read_manifest(self._store, folder)
            if manifest.model != self._model:
                remedy = f"holds checkpoints of another model ({folder}, job {manifest.job}); name another path"
                return _Found(mistake=remedy)
            needed = self._state.ranks_needed(manifest.num_ranks)
            parts = {rank: read_part(self._store, folder, manifest.parts[rank]) for rank in needed}
            shared = read_part(self._store, folder, manifest.parts[-1])
            return _Found("", self._state.misfit(shared, parts), shared, parts, manifest.num_ranks)
        except DamagedError as error:
            return _Found(str(error))

    # Writing ------------------------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """True if this rank asks all to write a checkpoint after the step under way; any thread may read it."""
        return self._wish(self._state.steps.num + 1) is not _Wish.NOTHING

    def _wish(self, step: int) -> _Wish:
        """Return what this rank asks for after ``step`` steps."""
        if self._is_ending:
            return _Wish.SAVE_AND_END
        is_free = self._ranks.is_main and not self._writer.is_busy
        return _Wish.SAVE if is_free and self._is_due(step) else _Wish.NOTHING

    def _is_due(self, step: int) -> bool:
        settings = self._settings
        if settings.steps is not None:
            return step - self._last_step >= settings.steps
        return self._now() - self._last_at >= settings.seconds

    def follow(self) -> None:
        """Agree on a checkpoint if a rank asks for one; every rank calls it together, between two steps.

        It is written when the script asks for its next batch, so that it holds what the script does after a step.
        """
        wish = self._wish(self._state.steps.num)
        wishes = [int(wish)] if self._group is None else gather_numbers(self._group, int(wish))
        if max(wishes) == _Wish.NOTHING:
            return
        self._agreed = self._agree(), max(wishes) == _Wish.SAVE_AND_END
        if self._state.loops.generators_at_begin is None:
            self.write_agreed()

    def write_agreed(self) -> None:
        """Write the checkpoint that all ranks have agreed on, if any; then end, where SIGTERM has asked for that."""
        self._record()
        if self._agreed is not None:
            (folder, is_last), self._agreed = self._agreed, None
            self._write(folder, wait=is_last)
            if self._is_ending:
                self._end()

    def save(self, *, wait: bool) -> None:
        """Write a checkpoint of now; every rank calls it together, between two steps.

        Args:
            wait: Whether to return once it is whole, or cannot be written; else as soon as its tensors are copied.
        """
        self._write(self._agree(), wait=wait)

    def _agree(self) -> str:
        """Have nothing under way, and return the folder of the next checkpoint, the same on every rank."""
        self._last_at, self._last_step = self._now(), self._state.steps.num
        self._state.settle()
        folder = new_folder(self._state.steps.num)
        return folder if self._group is None else broadcast_json(self._group, folder, _TEXT)

    def _write(self, folder: str, *, wait: bool) -> None:
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
        rank, size = self._ranks.rank, self._ranks.num_ranks

        def write(pause: Wait, pace: Callable[[int], None]) -> None:
            written = {f"rank-{rank}.json": write_part(self._store, folder, f"rank-{rank}", own, pace)}
            if shared is not None:
                written["shared.json"] = write_part(self._store, folder, "shared", shared, pace)
                self._finish(folder, step, size, written, pause)

        self._under_way = step, self._now() - began
        self._writer.begin(write)
        if wait:
            self._writer.wait(_END_SECONDS)
            self._record()

    def _finish(self, folder: str, step: int, size: int, written: dict[str, FileRecord], pause: Wait) -> None:
        manifest = Manifest(FORMAT, step, size, self._settings.job, self._model, (), 0.0, 0)
        finish(self._store, folder, manifest, written, pause)
        try:
            prune(self._store, self._settings.keep)
        except OSError as error:
            raise RuntimeError(f"it is whole, but older ones cannot be removed ({error.strerror or error})") from error

    def _record(self) -> None:
        """Record the checkpoint whose write has ended, if any, and say why it was not written, where it was not."""
        if self._under_way is None or self._writer.is_busy:
            return
        (step, pause), self._under_way = self._under_way, None
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
        if self._before_termination is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before_termination)
