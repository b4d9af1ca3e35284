"""Finds the newest checkpoint that is whole on every rank, over all places, and goes on from it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from trimtab_api.errors import UserError

from trimtab.checkpoint.manifest import read_manifest, saved
from trimtab.checkpoint.shards import DamagedError, read_part
from trimtab.session.checkpoints.job_state import JobState
from trimtab.session.checkpoints.tiers import Tier
from trimtab.session.rank_ops import RankOps
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import Read, broadcast_json, gather_json, json_of, raise_together

_TEXT: Read[str] = json_of(str)
_PLACES: Read[list[tuple[int, str]]] = json_of(list[tuple[int, str]])


class _Found(NamedTuple):
    """What a rank has read of a checkpoint."""

    refusal: str = ""
    """Why it is not whole."""
    mistake: UserError | None = None
    """Why the user must mend something before it can be used."""
    shared: Any = None
    parts: Mapping[int, Any] = MappingProxyType({})
    """By rank that wrote it."""
    num_ranks: int = 0


@dataclass(frozen=True)
class Restoring:
    """The ranks of one session, which look for a checkpoint together before the first step."""

    tiers: Sequence[Tier]
    state: JobState
    model: str
    """Fingerprint of the model's parameters."""
    names: tuple[str, str | None]
    """The job's, and the one that it had before."""
    group: Group | None
    ranks: RankOps

    def restore(self) -> bool:
        """Go on from the newest whole checkpoint, if there is any; every rank calls it together.

        Raises:
            UserError: The newest is of another model, or one is another job's; raised on every rank.
        """
        for number, folder in self._candidates():
            tier = self.tiers[number]
            found = self._read(tier, folder)
            refusals = [found.refusal] if self.group is None else gather_json(self.group, found.refusal, _TEXT)
            if told := next((each for each in refusals if each), ""):
                self.ranks.warn(f"checkpoint refused: {told}; the one before it is used, if there is any")
                continue
            self._raise_together(found.mistake)
            is_same = self.state.restore(found.shared, found.parts, found.num_ranks)
            others = "" if is_same else f", which {found.num_ranks} ranks wrote: their residuals are shared out"
            where = f"step {self.state.steps.num} in {tier.where}"
            self.ranks.warn(f"going on from the checkpoint of {where}{others}")
            self._clear(tier, folder)
            return True
        self._clear(None, "")
        return False

    def _candidates(self) -> list[tuple[int, str]]:
        """Return tier and folder of each checkpoint with a manifest, the newest first, as rank 0 sees them."""
        found, mistake = list[tuple[int, int, float, str]](), None
        if self.ranks.is_main:
            for number, tier in enumerate(self.tiers):
                try:
                    whole = saved(tier.store, self.ranks.warn)
                except OSError as error:
                    mistake = tier.mistake(f"cannot be read ({error.strerror or error})")
                    break
                others = (each.manifest.job for each in whole if each.manifest.job not in self.names)
                if (other := next(others, None)) is not None:
                    mistake = tier.mistake(
                        f"holds checkpoints of the job {other}, and this one is {self.names[0]}; set"
                        f" spec.checkpoint.fromJob to {other} if that job has ended and goes on as this one, or else"
                    )
                    break
                found += [(-each.step, number, -each.manifest.saved_at, each.folder) for each in whole]
        self._raise_together(mistake)
        places = [(number, folder) for _, number, _, folder in sorted(found)]
        return places if self.group is None else broadcast_json(self.group, places, _PLACES)

    def _read(self, tier: Tier, folder: str) -> _Found:
        """Return what this rank needs of a checkpoint, or what is wrong with it; nothing has changed by then."""
        try:
            manifest = read_manifest(tier.store, folder)
            if manifest.model != self.model:
                problem = f"holds checkpoints of another model ({folder}, job {manifest.job})"
                return _Found(mistake=tier.mistake(problem))
            needed = self.state.ranks_needed(manifest.num_ranks)
            parts = {rank: read_part(tier.store, folder, manifest.parts[rank]) for rank in needed}
            shared = read_part(tier.store, folder, manifest.parts[-1])
            misfit = self.state.misfit(shared, parts)
            mistake = tier.mistake(misfit) if misfit else None
            return _Found("", mistake, shared, parts, manifest.num_ranks)
        except DamagedError as error:
            return _Found(str(error))

    def _raise_together(self, mistake: UserError | None) -> None:
        """Raise on every rank if the checkpoints cannot be used for a reason that the user must mend."""
        raise_together(self.group, mistake, field=self.tiers[-1].field if mistake is None else str(mistake.field))

    def _clear(self, used: Tier | None, folder: str) -> None:
        """Free memory of what was refused, or never finished; it would take the room of what comes."""
        for tier in self.tiers if self.ranks.is_main else ():
            if tier.is_memory:
                with contextlib.suppress(OSError):
                    for name in tier.store.names():
                        if tier is not used or name != folder:
                            tier.store.remove(name)
