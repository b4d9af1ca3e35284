"""Writes one rank's part of one checkpoint, to one place or to several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trimtab.checkpoint.background import Wait
from trimtab.checkpoint.manifest import Manifest, finish, prune
from trimtab.checkpoint.shards import write_part
from trimtab.checkpoint.state_tree import Parts
from trimtab.session.checkpoints.tiers import Tier


@dataclass(frozen=True)
class Writing:
    """What one rank writes."""

    folder: str
    manifest: Manifest
    """All but its parts."""
    rank: int
    own: Parts
    """Copies, which training does not change."""
    shared: Parts | None
    """None on all ranks but 0."""

    @property
    def num_bytes(self) -> int:
        """Bytes of this rank's tensors."""
        parts = (self.own, self.shared) if self.shared is not None else (self.own,)
        return sum(tensor.nbytes for part in parts for tensor in part.tensors.values())

    def write(self, tiers: Sequence[Tier], wait: Wait, pace: Callable[[int], None]) -> None:
        """Write it to each place in turn; one that fails keeps it from no other.

        Args:
            tiers: The places.
            wait: Waits for so many seconds; False if nobody waits any more.
            pace: Called after each file with its bytes; it may wait.

        Raises:
            Exception: What a place raised; the last one's.
        """
        problem: Exception | None = None
        for tier in tiers:
            try:
                self._write(tier, wait, pace)
            except Exception as error:  # a store may raise anything
                problem = error
        if problem is not None:
            raise problem

    def _write(self, tier: Tier, wait: Wait, pace: Callable[[int], None]) -> None:
        store, folder, name = tier.store, self.folder, f"rank-{self.rank}"
        try:
            written = {f"{name}.json": write_part(store, folder, name, self.own, pace)}
            if self.shared is None:
                return
            written["shared.json"] = write_part(store, folder, "shared", self.shared, pace)
            finish(store, folder, self.manifest, written, wait)
        except Exception:
            tier.has_leftovers = tier.is_memory
            raise
        try:
            prune(store, tier.keep)
        except OSError as error:
            raise RuntimeError(f"it is whole, but older ones cannot be removed ({error.strerror or error})") from error
