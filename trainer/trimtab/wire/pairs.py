"""A sparse vector as (index, value) pairs: cut at indices, summed and coded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from trimtab_api.catalogue import wires

from trimtab import kernels
from trimtab.sparsifiers.topk import kth_largest
from trimtab.wire import index_code
from trimtab.wire.value_formats import format_of


@dataclass(frozen=True)
class Pairs:
    """Elements of a sparse vector that is sent, or of a sum."""

    indices: Tensor
    """int32 [m], unique and ascending."""
    values: Tensor
    """float32 [m]."""

    def __len__(self) -> int:
        return self.indices.numel()

    @property
    def parts(self) -> tuple[Tensor, Tensor]:
        """Indices and values, as kernels take them."""
        return self.indices, self.values

    def cut(self, bounds: Sequence[int]) -> list[Pairs]:
        """Return the pairs of each range ``bounds[i] .. bounds[i+1] - 1``."""
        edges = torch.tensor(bounds, dtype=torch.int32, device=self.indices.device)
        places = torch.searchsorted(self.indices, edges).tolist()
        return [self.only(slice(low, high)) for low, high in pairwise(places)]

    def only(self, chosen: Tensor | slice) -> Pairs:
        """Return the pairs at the places in ``chosen``: bool [m], ascending places, or a slice."""
        return Pairs(self.indices[chosen], self.values[chosen])

    def rounded(self, wire: str) -> tuple[Pairs, Pairs]:
        """Round the values to a format.

        Returns:
            The pairs as they arrive, which are sent without further error; and the rounding errors as pairs.
        """
        form = format_of(wire)
        if form.is_exact:
            return self, self.only(slice(0, 0))
        sent = form.decode(form.encode(self.values), len(self))
        return Pairs(self.indices, sent), Pairs(self.indices, self.values - sent)

    def coded(self, wire: str = wires.default) -> tuple[Tensor, Tensor, Tensor]:
        """Return the parts of a message that `decoded` reads, whose bytes are multiples of 4.

        The parts are the first index (int32, from which the code counts, so that a range far from 0 costs no more), the
        coded indices, and the values in the format ``wire``.
        """
        first = self.indices[:1] if len(self) else self.indices.new_zeros(1)
        values = format_of(wire).encode(self.values)
        if padding := -values.numel() % 4:
            values = torch.cat([values, values.new_zeros(padding)])
        return first, index_code.encode(self.indices - first), values

    @classmethod
    def decoded(cls, data: Tensor, wire: str = wires.default) -> Pairs:
        """Return the pairs that `coded` made, from uint8 [m]; their values are those that were sent."""
        first, data = data[:4].view(torch.int32), data[4:]
        count, form = index_code.count_of(data), format_of(wire)
        num_bytes = form.num_bytes(count)
        head = data.numel() - -(-num_bytes // 4) * 4
        values = form.decode(data[head : head + num_bytes], count)
        return cls(index_code.decode(data[:head]) + first, values)


@cache
def warm_up() -> None:
    """Compile the loops, so that no exchange waits for that."""
    index_code.warm_up()
    one = Pairs(torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.float32))
    added([one, one])
    contained(one.indices, one.indices)


def keep(residual: Tensor, pairs: Pairs) -> float:
    """Add pairs that were not sent on to a residual.

    Args:
        residual: float32 [n].
        pairs: What to add.

    Returns:
        The increase of the residual's squared norm.
    """
    before = kernels.take(residual, pairs.indices)
    after = before + pairs.values
    kernels.put(residual, pairs.indices, after)
    return kernels.squared_norm(after) - kernels.squared_norm(before)


def strongest(pairs: Pairs, k: int, segments: Sequence[int] = ()) -> tuple[Pairs, Pairs]:
    """Split pairs into the k of largest magnitude and the rest, the same on every rank that holds them.

    Among equals the first are taken. NaN counts as the largest, so that it is sent and seen.

    Args:
        pairs: What to split.
        k: Pairs to keep; more are kept if more segments than that have pairs.
        segments: See `exempt`, whose pairs are kept in any case.
    """
    if k >= len(pairs):
        return pairs, pairs.only(slice(0, 0))
    magnitudes = pairs.values.abs().nan_to_num(nan=math.inf)
    keeps = torch.zeros(len(pairs), dtype=torch.bool, device=pairs.indices.device)
    places = exempt(pairs, segments)
    keeps[places] = True
    magnitudes[places] = -1.0
    k -= places.numel()
    if k > 0:
        boundary = kth_largest(magnitudes, k)
        larger = magnitudes > boundary
        equals = (magnitudes == boundary).nonzero().flatten()
        larger[equals[: k - int(larger.sum())]] = True
        keeps |= larger
    return pairs.only(keeps), pairs.only(~keeps)


def exempt(pairs: Pairs, segments: Sequence[int]) -> Tensor:
    """Return the places of the pairs that no cut to the largest may drop: int64 [s], ascending.

    They are the largest of each segment that has pairs. One segment exempts none. Among equals the first counts. NaN
    counts as the largest.

    Args:
        pairs: What is to be cut.
        segments: Offsets of the segments, from 0 on.
    """
    if len(segments[1:-1]) == 0:
        return pairs.indices.new_empty(0, dtype=torch.int64)
    magnitudes = pairs.values.abs().nan_to_num(nan=math.inf)
    inner = torch.tensor(segments[1:-1], dtype=torch.int32, device=pairs.indices.device)
    segment = torch.searchsorted(inner, pairs.indices, right=True)
    largest = torch.full((len(segments) - 1,), -1.0, dtype=torch.float32, device=pairs.values.device)
    largest.scatter_reduce_(0, segment, magnitudes, "amax")
    places = (magnitudes == largest[segment]).nonzero().flatten()
    first = torch.ones_like(places, dtype=torch.bool)
    first[1:] = segment[places[1:]] != segment[places[:-1]]
    return places[first]


def joined(parts: Sequence[Pairs]) -> Pairs:
    """Join pairs of ranges that follow one another."""
    return Pairs(torch.cat([part.indices for part in parts]), torch.cat([part.values for part in parts]))


def added(parts: Sequence[Pairs]) -> Pairs:
    """Sum sparse vectors; each element's values are added in the order of the parts."""
    if parts[0].indices.device.type != "cpu":
        indices, places = torch.unique(torch.cat([part.indices for part in parts]), return_inverse=True)
        sums = parts[0].values.new_zeros(indices.numel())
        for part, places_of_part in zip(parts, places.split([len(part) for part in parts]), strict=True):
            sums[places_of_part] += part.values  # a GPU adds what `index_add_` is given in any order
        return Pairs(indices, sums)
    total = parts[0]
    for part in parts[1:]:
        room = len(total) + len(part)
        indices, values = torch.empty(room, dtype=torch.int32), torch.empty(room, dtype=torch.float32)
        count = _add(*_arrays(total), *_arrays(part), indices.numpy(), values.numpy())
        total = Pairs(indices[:count], values[:count])
    return total


def contained(indices: Tensor, others: Tensor) -> Tensor:
    """Return which of ``indices`` are among ``others`` (bool [m]); both are int32, unique and ascending."""
    if indices.device.type != "cpu":
        return torch.isin(indices, others)
    found = torch.empty(indices.numel(), dtype=torch.bool)
    _contained(indices.numpy(), others.numpy(), found.numpy())
    return found


def _arrays(pairs: Pairs) -> tuple[Any, Any]:
    return pairs.indices.numpy(), pairs.values.numpy()


@numba.njit(nogil=True, cache=True)
def _add(i: Any, x: Any, j: Any, y: Any, indices: Any, values: Any) -> int:
    """Merge two sparse vectors into ``indices`` and ``values``, and return the number of elements of the sum."""
    a = b = count = 0
    while a < i.size or b < j.size:
        if b == j.size or (a < i.size and i[a] < j[b]):
            indices[count], values[count] = i[a], x[a]
            a += 1
        elif a == i.size or j[b] < i[a]:
            indices[count], values[count] = j[b], y[b]
            b += 1
        else:
            indices[count], values[count] = i[a], np.float32(x[a] + y[b])
            a += 1
            b += 1
        count += 1
    return count


@numba.njit(nogil=True, cache=True)
def _contained(i: Any, j: Any, found: Any) -> None:
    b = 0
    for a in range(i.size):
        while b < j.size and j[b] < i[a]:
            b += 1
        found[a] = b < j.size and j[b] == i[a]
