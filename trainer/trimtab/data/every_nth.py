"""One rank's share of what every rank draws alike: every N-th sample or batch.

All ranks draw under the same seed, that of the run and the epoch, and from generators set aside from training's. The
generators of training differ between ranks: under them each rank would draw another order, and some samples would be
trained on twice and others never.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler
from trimtab_api.errors import UserError

from trimtab.checkpoint.random_state import RandomState
from trimtab.data.epoch_numbers import EpochNumbers
from trimtab.data.loader_copy import draws_batches
from trimtab.data.look import digest


class EveryNthSampler(Sampler[Any]):
    """Every N-th of what another sampler draws, the same number on every rank.

    Where N does not divide what is drawn, samples from its beginning fill the last round, unless the loader drops its
    last batch. Of whole batches, an incomplete last round is left out.
    """

    def __init__(self, source: Any, loader: Any, rank: int, num_ranks: int, seed: int, numbers: EpochNumbers) -> None:
        """``source`` is the sampler that ``loader`` draws by. Raises `UserError` where it has no length."""
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
        """Whether it draws samples; else it draws whole batches."""
        self._fill_up = self.of_samples and not loader.drop_last
        self._epoch = 0
        self.look: str | None = None
        """A digest of what the source drew last."""

    def set_epoch(self, number: int) -> None:
        """Draw as in that epoch from the next `__iter__` on."""
        self._epoch = number
        self._numbers.tell(self._source, number)

    def __iter__(self) -> Iterator[Any]:
        drawn = self._drawn()
        over = len(drawn) % self._num_ranks
        if over and self._fill_up:
            drawn += itertools.islice(itertools.cycle(list(drawn)), self._num_ranks - over)
        elif over:
            del drawn[-over:]
        return iter(drawn[self._rank :: self._num_ranks])

    def __len__(self) -> int:
        whole, over = divmod(len(self._source), self._num_ranks)
        return whole + (1 if over and self._fill_up else 0)

    def _drawn(self) -> list[Any]:
        """All that the sampler draws in this epoch, the same on every rank."""
        before = RandomState.capture()
        try:
            _seed(self._seed + self._epoch, _generators(self._source))
            drawn = list(self._source)
            self.look = digest(drawn)
            return drawn
        finally:
            before.restore()


def every_nth_batch(
    loader: Iterable[Any],
    rank: int,
    num_ranks: int,
    seed: int,
    *,
    drawn: Callable[[list[Any]], None] = lambda _: None,
) -> Iterator[Any]:
    """Every N-th batch of a stream; an incomplete last round is left out, so that no rank waits for another.

    ``drawn`` is told of each round of batches that was drawn, one for each rank; the last has fewer.

    The stream has random generators of its own, seeded alike on every rank; those of training are put back around
    every draw.
    """
    batches: Iterator[Any] | None = None
    of_stream: RandomState | None = None
    while True:
        of_training = RandomState.capture()
        try:
            if batches is None or of_stream is None:
                _seed(seed, _generators(loader))
                batches = iter(loader)
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


def _generators(source: Any) -> list[torch.Generator]:
    """The generators given to a loader or sampler, and to the samplers inside it."""
    found: list[torch.Generator] = []
    while source is not None:
        generator = getattr(source, "generator", None)
        if isinstance(generator, torch.Generator):
            found.append(generator)
        source = getattr(source, "sampler", None)
    return found
