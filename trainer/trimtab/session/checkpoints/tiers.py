"""The places of a job's checkpoints: the memory of its hosts, which is fast, and a store, which outlives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trimtab_api.errors import UserError

from trimtab.checkpoint.keeper.client import KeeperClient
from trimtab.checkpoint.keeper.memory_store import MemoryStore
from trimtab.checkpoint.manifest import saved
from trimtab.checkpoint.settings import CheckpointSettings, MemorySettings
from trimtab.checkpoint.store import FIELD, Store, open_store


@dataclass
class Tier:
    """One place, how often it is written, and when it was last."""

    store: Store
    where: str
    """The place, for people."""
    field: str
    """The field of the job that names it."""
    remedy: str
    """What a user does who wants none of what is there."""
    seconds: float
    steps: int | None
    keep: int
    is_memory: bool = False
    """True if it is bounded and goes with the job: nothing stays there that nobody can go on from."""
    last_at: float = 0.0
    last_step: int = 0
    has_leftovers: bool = False
    """True if a write has failed and left parts that take the room of the next."""
    close: Callable[[], None] = lambda: None

    def is_due(self, now: float, step: int) -> bool:
        """Return whether it is time for a checkpoint after ``step`` steps."""
        if self.steps is not None:
            return step - self.last_step >= self.steps
        return now - self.last_at >= self.seconds

    def begin(self, now: float, step: int) -> None:
        """Count from here: a checkpoint is being written, or training goes on from one."""
        self.last_at, self.last_step = now, step

    def remove_leftovers(self) -> None:
        """Remove all but whole checkpoints. Nobody writes meanwhile. Raises `OSError`."""
        self.has_leftovers = False
        kept = [each.folder for each in saved(self.store)[: self.keep]]
        for folder in self.store.names():
            if folder not in kept:
                self.store.remove(folder)

    def mistake(self, problem: str) -> UserError:
        """Return the error for what a user must mend; ``problem`` says what is wrong."""
        joint = " " if problem.endswith("or else") else "; "
        return UserError(f"{problem}{joint}{self.remedy}", field=self.field, value=self.where)


def open_tiers(settings: CheckpointSettings, warn: Callable[[str], None]) -> list[Tier]:
    """Return the places of a job's checkpoints, the most durable one last.

    Args:
        settings: The job's.
        warn: Takes a line for people.

    Raises:
        UserError: A place cannot be reached from here.
    """
    tiers = [] if settings.memory is None else [_memory(settings.memory, warn)]
    if settings.where is not None:
        tiers.append(
            Tier(
                open_store(settings.where),
                settings.where,
                FIELD,
                "name another path",
                settings.seconds,
                settings.steps,
                settings.keep,
            )
        )
    return tiers


def _memory(settings: MemorySettings, warn: Callable[[str], None]) -> Tier:
    keepers = [KeeperClient(worker, address) for worker, address in enumerate(settings.keepers)]
    store = MemoryStore(keepers, settings.worker, warn)
    # One stays: the bound is for this one and the one that is being written.
    return Tier(
        store,
        "the memory of the workers' hosts",
        "spec.checkpoint.inMemory",
        "delete the job and create it anew",
        settings.seconds,
        settings.steps,
        keep=1,
        is_memory=True,
        close=store.close,
    )
