"""The store over a job's keepers: each file is in the memory of two of them, on two hosts if there are two."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from trimtab.checkpoint.keeper.client import AwayError, KeeperClient, Listing
from trimtab.checkpoint.store import Store

T = TypeVar("T")

#: Copies of a file.
NUM_COPIES = 2
#: Seconds for which a keeper that did not answer is taken to be away, and is not asked.
AWAY_SECONDS = 5.0


class MemoryStore(Store):
    """Files in the memory of a job's keepers. One that is away counts as empty."""

    def __init__(
        self,
        keepers: Sequence[KeeperClient],
        worker: int,
        warn: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Call nobody yet.

        Args:
            keepers: One for each worker of the job, in order.
            worker: Number of this process's worker.
            warn: Takes a line for people; it may get the same line again.
            now: Seconds of a clock that never goes back.
        """
        first = worker % len(keepers)
        self._keepers = [*keepers[first:], *keepers[:first]]
        """The own worker's first, then its neighbours."""
        self._warn, self._now = warn, now
        self._away_until: dict[int, float] = {}
        self._places: tuple[str, list[KeeperClient]] = "", []
        """The folder that was written last, and the keepers that its files go to."""

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Keep a file on two keepers; one is enough where no other takes it, which is said.

        Raises:
            OSError: No keeper takes it.
        """
        places = self._places_for(name.partition("/")[0])
        digest = hashlib.sha256(data).digest()
        waiting = [(keeper, keeper.put(name, data, digest)) for keeper in places]
        problems = [str(error) for _, error in self._failures(waiting)]
        if len(problems) == len(places):
            raise OSError("; ".join(problems) or "no keeper answers")
        if problems or (len(places) < NUM_COPIES <= len(self._keepers)):
            self._warn(f"a checkpoint has one copy in memory: {problems[0] if problems else 'only one keeper answers'}")

    def read(self, name: str) -> bytes:
        """Return a file from the first keeper that has it whole.

        Raises:
            FileNotFoundError: All keepers answer, and none has it.
            OSError: Of those that answer none has it whole.
        """
        problem = ""
        folder, _, file = name.rpartition("/")
        holders = [keeper for keeper, listing in self._listings(folder) if file in listing.names]
        for keeper in holders:
            try:
                return keeper.get(name)
            except FileNotFoundError:  # removed since
                continue
            except AwayError:
                self._mark_away(keeper)
            except OSError as error:
                problem = str(error)
        away = [str(keeper.worker) for keeper in self._keepers if self._is_away(keeper)]
        if problem or away:
            raise OSError(problem or f"no keeper that answers has it, and not those of workers {', '.join(away)}")
        raise FileNotFoundError(name)

    def names(self, folder: str = "") -> list[str]:
        """Return the names that any keeper has in a folder."""
        return sorted({name for _, listing in self._listings(folder) for name in listing.names})

    def remove(self, folder: str) -> None:
        """Remove a folder from every keeper that answers.

        Raises:
            OSError: A keeper refuses.
        """
        asked = [(keeper, keeper.remove(folder)) for keeper in self._keepers if not self._is_away(keeper)]
        for _, error in self._failures(asked):
            if not isinstance(error, AwayError):
                raise error

    def close(self) -> None:
        """Close the channels."""
        for keeper in self._keepers:
            keeper.close()

    def _places_for(self, folder: str) -> list[KeeperClient]:
        """Return the keepers that a folder's files go to; they stay the same while it is written."""
        if folder != self._places[0]:
            answering = [(keeper, listing.host) for keeper, listing in self._listings(folder)]
            self._places = folder, places(answering)
        return self._places[1]

    def _listings(self, folder: str) -> Iterator[tuple[KeeperClient, Listing]]:
        """Yield the keepers that answer, with what they have in a folder."""
        asked = [(keeper, keeper.names(folder)) for keeper in self._keepers if not self._is_away(keeper)]
        for keeper, wait in asked:
            try:
                yield keeper, wait()
            except OSError:
                self._mark_away(keeper)

    def _failures(self, waiting: Sequence[tuple[KeeperClient, Callable[[], T]]]) -> list[tuple[KeeperClient, OSError]]:
        """Wait for all calls; return the errors of those that failed."""
        failures = []
        for keeper, wait in waiting:
            try:
                wait()
            except OSError as error:
                if isinstance(error, AwayError):
                    self._mark_away(keeper)
                failures.append((keeper, error))
        return failures

    def _is_away(self, keeper: KeeperClient) -> bool:
        return self._now() < self._away_until.get(keeper.worker, 0.0)

    def _mark_away(self, keeper: KeeperClient) -> None:
        self._away_until[keeper.worker] = self._now() + AWAY_SECONDS


def places(answering: Sequence[tuple[T, str]]) -> list[T]:
    """Return who keeps the copies: the first, and the next one on another host, else the next one.

    Args:
        answering: Who could, in the order of preference, each with its host; empty where it is not known.
    """
    if not answering:
        return []
    (first, host), *others = answering
    elsewhere = [keeper for keeper, other in others if not host or other != host]
    return [first, *(elsewhere or [keeper for keeper, _ in others])[: NUM_COPIES - 1]]
