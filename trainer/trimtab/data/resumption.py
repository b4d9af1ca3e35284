"""Where the next loop goes on after a restart: at its next batch, with the rest that other ranks have left, or anew."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.checkpoint.random_state import RandomState
from trimtab.data.owners import People
from trimtab.data.position import Position
from trimtab.data.rest_of_epoch import RestOfEpoch
from trimtab.data.sharded_loader import ShardedLoader


@dataclass(frozen=True)
class Start:
    """How a loop begins."""

    share: ShardedLoader
    """What this rank draws."""
    num_trained: int = 0
    """Batches of it that an earlier run has trained on."""
    began: RandomState | None = None
    """The generators with which it draws; None: as they are."""
    has_trained: bool = False
    """True if an earlier run has made steps of the loop, and perhaps none is left."""


class Resumption:
    """The position at which a loop goes on: the first that it fits, if no step is made of another loop before.

    So a script may loop over validation data first.
    """

    def __init__(self, people: People) -> None:
        self._people = people
        self._position = Position()
        self._began: RandomState | None = None
        self._why_anew = ""
        """Why the last loop has not gone on there."""

    def go_on(self, position: Position, began: RandomState | None) -> None:
        """Have the next loop go on at ``position``; ``began``: the generators with which it began, if known."""
        self._position, self._began = position, began

    def num_left(self, share: ShardedLoader) -> int | None:
        """Return the batches that a loop over ``share`` would give, were it the next; None where it is not known."""
        start = self._start(share)
        num_batches = start.share.num_batches
        return None if num_batches is None else num_batches - start.num_trained

    def begin(self, share: ShardedLoader) -> Start:
        """Return how the loop over ``share`` begins, and say if it goes on where an earlier run was."""
        start, before = self._start(share), self._position
        if not start.has_trained:
            self._why_anew = _why_anew(before, share, self._began) if before.batches or before.drawn else ""
            return start
        self._position, self._began, self._why_anew = Position(), None, ""
        if start.num_trained:
            self._people.say(
                f"resuming: this loop skips its first {start.num_trained} batches, on which the earlier run trained"
            )
        else:
            of = "" if before.of_drawn is None else f" of {before.of_drawn}"
            drawing = start.share.drawing
            self._people.say(
                f"resuming: this loop goes on after its first {drawing.before}{of} {drawing.unit};"
                f" {drawing.ranks} ranks share out the rest"
            )
        return start

    def stepped(self) -> None:
        """Note a step; if it is of a loop that could not go on at the position, say why, and let none go on there."""
        if self._why_anew:
            self._people.warn(f"resuming: this loop starts from its beginning, because {self._why_anew}")
            self._position, self._began, self._why_anew = Position(), None, ""

    def _start(self, share: ShardedLoader) -> Start:
        before, drawing = self._position, share.drawing
        if not before.batches and not before.drawn:
            return Start(share)
        can_share_out, present = not _why_anew(before, share, self._began), share
        if before.drawn_before:
            if not can_share_out:
                return Start(share)
            present = RestOfEpoch(share, before, before.drawn_before, self._began)
        if before.ranks in (0, drawing.ranks) and present.num_batches == before.of_batches:
            return Start(present, before.batches, self._began, has_trained=True)
        if not can_share_out:
            return Start(share)
        return Start(
            RestOfEpoch(share, before, before.drawn, self._began),
            began=self._began if before.order == "generators" else None,
            has_trained=True,
        )


def _why_anew(before: Position, share: ShardedLoader, began: RandomState | None) -> str:
    """Return why the loop under way at a position cannot go on in other shares; empty if it can."""
    drawing = share.drawing
    if not before.order or not drawing.is_shareable:
        had = "a loop of another length" if before.of_batches is None else f"one of {before.of_batches} batches"
        resized = before.ranks not in (0, drawing.ranks)
        return f"the earlier run was in {had}" + (f" on each of {before.ranks} ranks" if resized else "")
    if before.order == "generators" and began is None:
        return "a single process drew it by its random generators, which were not kept"
    if drawing.total != before.of_drawn:
        return f"it has {drawing.total} {drawing.unit}, and that of the earlier run had {before.of_drawn}"
    return ""
