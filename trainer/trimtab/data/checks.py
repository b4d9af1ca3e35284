"""Checks that ranks share the data: in a loop over ``session.batches``, and in a script that loops by itself.

Ranks that share a loader draw alike, and each leaves out the other ranks' shares. If a loader gives each rank its own
data already, as a stream that reads its rank's files, no rank trains on what another rank leaves out. So ranks compare
a digest of what each drew first in a loop (`Look`).

A loader that nothing splits gives every rank all the data. If it also draws alike on all ranks, each rank computes the
same gradients, to the last bit, and all ranks together learn no more than one would (`FirstGradients`). Whether loaders
that draw unlike split the data, nobody can know from outside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor
from torch.utils.data import TensorDataset

from trimtab.transport.group import Group
from trimtab.transport.object_collectives import Read, gather_json, json_of

#: Loops that were begun and not told of, kept.
_MOST_LOOKS = 100
#: Elements of a tensor that are looked at.
_NUM_ELEMENTS = 64


@dataclass
class Look:
    """One loop that a rank has begun."""

    loader: str
    """Its class."""
    drawn: str | None = None
    """A digest of what every rank should draw alike; None where ranks need not, or nothing was drawn yet."""

    def to_json(self) -> dict[str, str | None]:
        """Return plain data."""
        return asdict(self)


def digest(drawn: Any) -> str:
    """Return a digest of batches, samples or indices: equal where they are."""
    return hashlib.blake2b(" ".join(_parts(drawn)).encode(), digest_size=8).hexdigest()


def digest_of_data(data: Any) -> str | None:
    """Return a digest of a data set: its length, and its first sample if reading that runs no code of the script."""
    try:
        length = len(data)
    except TypeError:
        return None
    is_plain = isinstance(data, Tensor | np.ndarray | list | tuple) or type(data) is TensorDataset
    return digest([length, data[0]] if is_plain and length else [length])


def _parts(value: Any) -> Iterator[str]:
    if isinstance(value, Tensor):
        yield _first_of(value)
    elif isinstance(value, np.ndarray):
        yield f"{list(value.shape)} {value.ravel()[:_NUM_ELEMENTS].tolist()}"
    elif isinstance(value, Mapping):
        for key in value:
            yield str(key)
            yield from _parts(value[key])
    elif isinstance(value, list | tuple):
        yield str(len(value))
        for each in value[:_NUM_ELEMENTS]:
            yield from _parts(each)
    else:
        yield repr(value)[:80] if isinstance(value, str | bytes | int | float | bool | None) else type(value).__name__


def _first_of(tensor: Tensor) -> str:
    """Return the first elements; only the layout of a tensor that is no plain one, such as a sparse one."""
    try:
        return f"{list(tensor.shape)} {tensor.detach().flatten()[:_NUM_ELEMENTS].cpu().tolist()}"
    except RuntimeError:  # as torch says of sparse, nested and quantized ones
        return str(tensor.layout)


def mistakes(looks: Sequence[Sequence[Look]]) -> list[str]:
    """Return what ranks should be told of the loops that each has begun since they told each other last.

    Args:
        looks: The loops of each rank, in rank order.
    """
    num_ranks, counts = len(looks), [len(each) for each in looks]
    if len(set(counts)) > 1:
        alone = [str(rank) for rank, count in enumerate(counts) if count == max(counts)]
        return [
            f"rank {', '.join(alone)} looped over session.batches, and other ranks did not: such a loop gives a rank"
            f" 1 / {num_ranks} of the data. Loop on every rank and add up by session.all_reduce, or loop over the"
            " loader itself on one rank"
        ]
    found = []
    for begun in zip(*looks, strict=True):
        drawn = [each.drawn for each in begun]
        if None not in drawn and len(set(drawn)) > 1:
            others = [str(rank) for rank, each in enumerate(drawn) if each != drawn[0]]
            found.append(
                f"loader: {begun[0].loader} gives rank {', '.join(others)} other data than rank 0, and each rank"
                f" trains on 1 / {num_ranks} of its own; if the data are split by rank already, write"
                " session.batches(loader, sharded=True), else draw alike on all ranks"
            )
    return found


#: Steps that are compared: one may be alike by chance, as where a weight begins at 0.
_NUM_STEPS = 3


class FirstGradients:
    """The norms of this rank's own gradients in its first steps, before they are exchanged."""

    def __init__(self) -> None:
        self._norms: list[float] = []
        self._is_told = False

    def add(self, norm: float) -> None:
        """Count a training step."""
        if len(self._norms) < _NUM_STEPS:
            self._norms.append(norm)

    @property
    def is_due(self) -> bool:
        """True if ranks should tell each other of theirs."""
        return len(self._norms) == _NUM_STEPS and not self._is_told

    def take(self) -> list[float]:
        """Return what to tell the other ranks, once; empty before it is due and afterwards."""
        if not self.is_due:
            return []
        self._is_told = True
        return self._norms


def problem_of(norms: Sequence[Sequence[float]]) -> str:
    """Return what is wrong, by what each rank has told; empty where nothing is known to be."""
    first = list(norms[0])
    if len(norms) == 1 or len(first) < _NUM_STEPS or not all(first) or any(list(each) != first for each in norms):
        return ""
    return (
        f"all {len(norms)} ranks computed the same gradients in the first {_NUM_STEPS} steps: each trains on the same"
        " data, and together they learn no more than one. Loop over session.batches(loader), or give the loader a"
        " DistributedSampler"
    )


@dataclass(frozen=True)
class _News:
    """One rank's message to the others on its data."""

    looks: list[Look]
    norms: list[float]
    """Norms of the first gradients; empty where a loop over `batches` was begun."""


_NEWS: Read[_News] = json_of(_News)


class Warn(Protocol):
    """Tells people of a mistake, also where one process trains: `trimtab.session.rank_ops.RankOps`."""

    def __call__(self, what: str, /, *, on_each: bool = False) -> None:
        """Print a line of rank 0's, or with ``on_each`` of this rank, whichever it is."""
        ...


class DataChecks:
    """Compares what ranks have drawn and computed; keeps what the other ranks have not been told of."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._looks: list[Look] = []
        self._first_gradients = FirstGradients()

    def loop_begun(self, loader: str, *, is_alike: bool) -> Look:
        """Return the look of a loop that begins, for the caller to fill in.

        Args:
            loader: Class of its loader.
            is_alike: Whether ranks draw alike; else each loops over data of its own, as often as it likes.
        """
        look = Look(loader)
        if is_alike:
            self._looks = [*self._looks[-_MOST_LOOKS:], look]
        return look

    def exchanged(self, norm: float) -> None:
        """Note the norm of this rank's gradients in a training step."""
        self._first_gradients.add(norm)

    @property
    def have_news(self) -> bool:
        """True if there is something to compare."""
        return bool(self._looks) or self._first_gradients.is_due

    def compare(self, group: Group, *, by_gradients: bool) -> str:
        """Tell all ranks what was not told yet, and warn of what does not fit; every rank calls it together.

        Args:
            group: All ranks.
            by_gradients: Whether to compare the first gradients too.

        Returns:
            Says that all ranks train on the same data; empty where that is not known.
        """
        looks, self._looks = self._looks, []
        own = _News(looks, self._first_gradients.take() if by_gradients else [])
        told = gather_json(group, asdict(own), _NEWS)
        for mistake in mistakes([news.looks for news in told]):
            self._warn(mistake)
        if problem := problem_of([news.norms for news in told]):
            self._warn(problem)
        return problem
