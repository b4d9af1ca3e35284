"""One rank's share of what every rank draws alike: every N-th sample or batch.

All ranks draw under the same seed, that of the run and the epoch, and from generators set aside from training's. The
generators of training differ between ranks: under them each rank would draw another order, and some samples would be
trained on twice and others never.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.utils.data import Sampler
from trimtab_api.errors import UserError

from trimtab.checkpoint.random_state import RandomState
from trimtab.data.checks import digest
from trimtab.data.loader_clone import draws_batches


class EveryNthSampler(Sampler[Any]):
    """Every N-th of what another sampler draws, the same number on every rank.

    Where N does not divide what is drawn, samples from its beginning fill the last round, unless the loader drops its
    last batch. Of whole batches, an incomplete last round is left out.
    """

    def __init__(self, source: Any, loader: Any, rank: int, num_ranks: int, seed: int, numbers: EpochNumbers) -> None:
        """Draw by ``source``, the sampler of ``loader``. Raise `UserError` where it has no length."""
        try:
            len(source)
        except TypeError:
            raise UserError(
                "cannot be shared among ranks, because it has no length; give it a __len__, or make it draw for each "
                "rank by itself and say so by attributes num_replicas and rank",
                field="sampler",
                value=type(source).__name__,
            ) from None
        self._source, self._rank, self._num_ranks, self._seed = source, rank, num_ranks, seed
        self._numbers = numbers
        self.of_samples = loader.batch_size is not None and not draws_batches(loader)
        """True if it draws samples; else it draws whole batches."""
        self._fill_up = self.of_samples and not loader.drop_last
        self._epoch = 0
        self.look: str | None = None
        """A digest of what the source drew last."""

    def set_epoch(self, number: int) -> None:
        """Draw as in that epoch from the next `__iter__` on."""
        self._epoch = number
        self._numbers.tell(self._source, number)

    def __iter__(self) -> Iterator[Any]:
        return iter(share_of(self.drawn(), 0, self._rank, self._num_ranks, fill_up=self._fill_up))

    def __len__(self) -> int:
        return length_of_share(len(self._source), self._num_ranks, fill_up=self._fill_up)

    def drawn(self) -> list[Any]:
        """Return all that the sampler draws in this epoch, the same on every rank."""
        before = RandomState.capture()
        try:
            _seed(self._seed + self._epoch, own_generators(self._source))
            drawn = list(self._source)
            self.look = digest(drawn)
            return drawn
        finally:
            before.restore()


def share_of(order: Sequence[Any], start: int, rank: int, num_ranks: int, *, fill_up: bool) -> list[Any]:
    """Return one rank's share of what an epoch draws from a place on: every N-th, as many on each rank.

    Args:
        order: All that the epoch draws.
        start: How much of it was drawn before.
        rank: Whose share.
        num_ranks: N.
        fill_up: Whether the epoch's beginning fills the last round; else an incomplete one is left out.
    """
    rest = list(order[start:])
    over = len(rest) % num_ranks
    if over and fill_up:
        rest += itertools.islice(itertools.cycle(order), num_ranks - over)
    elif over:
        del rest[-over:]
    return rest[rank::num_ranks]


def length_of_share(num: int, num_ranks: int, *, fill_up: bool) -> int:
    """Return the length of `share_of`, where ``num`` are left."""
    whole, over = divmod(max(0, num), num_ranks)
    return whole + (1 if over and fill_up else 0)


def every_nth_batch(
    loader: Iterable[Any],
    rank: int,
    num_ranks: int,
    seed: int,
    *,
    start: int = 0,
    drawn: Callable[[list[Any]], None] = lambda _: None,
) -> Iterator[Any]:
    """Yield every N-th batch of a stream; an incomplete last round is left out, so that no rank waits for another.

    The stream has random generators of its own, seeded alike on every rank; those of training are put back around
    every draw.

    Args:
        loader: The stream.
        rank: Whose batches to yield.
        num_ranks: N.
        seed: Of the stream's generators.
        start: Batches that were trained on before: they are drawn and dropped.
        drawn: Told of each round of batches that was drawn, one for each rank; the last has fewer.
    """
    batches: Iterator[Any] | None = None
    of_stream: RandomState | None = None
    while True:
        of_training = RandomState.capture()
        try:
            if batches is None or of_stream is None:
                _seed(seed, own_generators(loader))
                batches = itertools.islice(loader, start, None)
            else:
                of_stream.restore()
            turn = list(itertools.islice(batches, num_ranks))
            of_stream = RandomState.capture()
        finally:
            of_training.restore()
        drawn(turn)
        if len(turn) < num_ranks:
            return
        yield turn[rank]


def _seed(seed: int, generators: list[torch.Generator]) -> None:
    """Seed everything on the CPU that may be drawn from: the global generators and ``generators``."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    for generator in (torch.default_generator, *generators):
        generator.manual_seed(seed)


def own_generators(source: Any) -> list[torch.Generator]:
    """Return the generators given to a loader or sampler, and to the samplers inside it."""
    found: list[torch.Generator] = []
    while source is not None:
        generator = getattr(source, "generator", None)
        if isinstance(generator, torch.Generator):
            found.append(generator)
        source = getattr(source, "sampler", None)
    return found


#: Attributes with the number that ``set_epoch`` was last given: of torch and datasets; of accelerate.
_KEPT_AS = ("epoch", "iteration")


class EpochNumbers:
    """The numbers that were told so far. What has another by then was told by the script, and stays the script's."""

    def __init__(self) -> None:
        self._told: WeakKeyDictionary[Any, int | None] = WeakKeyDictionary()
        """None: the script tells it."""

    def tell(self, what: Any, number: int) -> None:
        """Call ``what.set_epoch(number)``, where there is such a method and the script leaves it to us."""
        if not hasattr(what, "set_epoch"):
            return
        with contextlib.suppress(TypeError):  # what cannot be a key is always told
            if self._is_the_scripts(what):
                self._told[what] = None
                return
            self._told[what] = number
        what.set_epoch(number)

    def _is_the_scripts(self, what: Any) -> bool:
        last = self._told.get(what, 0)  # they begin at 0 by themselves
        kept = next((getattr(what, name) for name in _KEPT_AS if hasattr(what, name)), None)
        return last is None or (type(kept) is int and kept >= 0 and kept != last)


@dataclass(frozen=True)
class LeftOut:
    """The data that no rank trains on in an epoch."""

    num: int
    of: int
    unit: str
    """The unit that is counted: samples or batches."""
    why: str

    @property
    def share(self) -> float:
        """The left-out share of all data."""
        return self.num / self.of if self.of else 0.0

    def __str__(self) -> str:
        return f"{self.num} of {self.of} {self.unit} are left out in each epoch, since {self.why}"


def left_out_of_rounds(num_batches: int, num_ranks: int) -> LeftOut | None:
    """Return what is left out where ranks share whole batches; None where that is nothing."""
    num = num_batches % num_ranks
    return LeftOut(num, num_batches, "batches", f"each of {num_ranks} ranks has as many") if num else None


def left_out_of_last_batches(num_samples: int, num_batches: int, batch_size: int, num_ranks: int) -> LeftOut | None:
    """Return what is left out where each rank drops its last, incomplete batch; None where that is nothing.

    Args:
        num_samples: In an epoch, over all ranks.
        num_batches: Of each rank.
        batch_size: Of each rank.
        num_ranks: How many train together.
    """
    num = num_samples - num_batches * batch_size * num_ranks
    why = f"drop_last drops the incomplete batch of each of {num_ranks} ranks (batch_size={batch_size} is per rank)"
    return LeftOut(num, num_samples, "samples", why) if num > 0 else None


def length_of(loader: Any) -> int | None:
    """Return ``len`` of anything; None where it has none."""
    try:
        return len(loader)
    except TypeError:
        return None
