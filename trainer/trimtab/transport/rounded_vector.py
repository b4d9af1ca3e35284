"""The vector that an all-reduce sums, which may lie in several pieces of memory, and the code of its elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.transport.base import Transport
from trimtab.wire.value_formats import ValueFormat, format_of


@dataclass(frozen=True)
class Rounding:
    """A format that rounds, and its errors."""

    format: ValueFormat
    errors: Tensor
    """float32, as long as what is rounded: rounding errors are added to it."""


def rounding_to(wire: str, errors: Tensor) -> Rounding | None:
    """Return the rounding of a plan's wire format into ``errors`` (float32, zeros); None if it rounds nothing."""
    form = format_of(wire)
    return None if form.is_exact else Rounding(form, errors)


class Vector:
    """The concatenation of float32 ``pieces``, of which ranges are sent, received and added up."""

    def __init__(self, transport: Transport, pieces: Sequence[Tensor], longest: int) -> None:
        """Make the vector.

        Args:
            transport: Sends and receives.
            pieces: float32 tensors.
            longest: Elements of the longest range that is received and added, if no more than a chunk.
        """
        self._transport, self._pieces = transport, pieces
        self.num_elements = sum(piece.numel() for piece in pieces)
        self._step = transport.chunk_bytes // 4
        self._scratch = pieces[0].new_empty(min(self._step, longest))

    def chunks(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the range cut at chunks; one empty chunk if it is empty."""
        for low in range(start, max(end, start + 1), self._step):
            yield low, min(low + self._step, end)

    def send(self, peer: int, low: int, high: int) -> None:
        """Send the elements ``low .. high-1``."""
        self._transport.send(peer, *self._views(low, high))

    def receive(self, peer: int, low: int, high: int, *, to: Iterable[int] = ()) -> None:
        """Overwrite the elements ``low .. high-1`` with the peer's, and pass these on, as they came, ``to`` others."""
        views = self._views(low, high)
        self._transport.receive(peer, *views)
        for receiver in to:
            self._transport.send(receiver, *views)

    def receive_and_add(self, peer: int, low: int, high: int) -> None:
        """Add the peer's elements to ``low .. high-1``."""
        views = self._views(low, high)
        received = self._scratch[: high - low]
        self._transport.receive(peer, received)
        _add(views, received)

    def _views(self, start: int, end: int) -> list[Tensor]:
        views, offset = [], 0
        for piece in self._pieces:
            low, high = max(start - offset, 0), min(end - offset, piece.numel())
            if low < high:
                views.append(piece[low:high])
            offset += piece.numel()
        return views


class RoundedVector(Vector):
    """A vector whose first piece crosses in a format that rounds; sums are float32.

    What is sent is rounded in place, so that the rank that sends a sum to all has the same bits. The rank that rounds
    adds the rounding errors to its own. The other pieces cross as they are.
    """

    def __init__(self, transport: Transport, pieces: Sequence[Tensor], longest: int, rounding: Rounding) -> None:
        super().__init__(transport, pieces, longest)
        self._errors, self._format = rounding.errors, rounding.format

    def send(self, peer: int, low: int, high: int) -> None:
        """See `Vector.send`."""
        values, rest = self._split(low, high)
        coded = self._format.round(values, self._errors[low : low + values.numel()])
        self._transport.send(peer, coded, *rest)

    def receive(self, peer: int, low: int, high: int, *, to: Iterable[int] = ()) -> None:
        """See `Vector.receive`."""
        target, rest = self._split(low, high)
        coded = self._coded(target)
        self._transport.receive(peer, coded, *rest)
        for receiver in to:
            self._transport.send(receiver, coded, *rest)
        self._format.read(coded, target)

    def receive_and_add(self, peer: int, low: int, high: int) -> None:
        """See `Vector.receive_and_add`."""
        target, rest = self._split(low, high)
        coded = self._coded(target)
        others = self._scratch[: high - low - target.numel()]
        self._transport.receive(peer, coded, others)
        self._format.add(coded, target)
        _add(rest, others)

    def _coded(self, values: Tensor) -> Tensor:
        """Allocate the coded form of the values."""
        return values.new_empty(self._format.num_bytes(values.numel()), dtype=torch.uint8)

    def _split(self, low: int, high: int) -> tuple[Tensor, list[Tensor]]:
        """Return the part of a range that lies in the first piece, and the others."""
        first = self._pieces[0][low:high]
        return first, self._views(low + first.numel(), high)


def _add(views: Sequence[Tensor], received: Tensor) -> None:
    offset = 0
    for view in views:
        view += received[offset : offset + view.numel()]
        offset += view.numel()


def vector_of(transport: Transport, pieces: Sequence[Tensor], longest: int, rounding: Rounding | None) -> Vector:
    """Return a vector of the pieces; with ``rounding``, values of the first piece are rounded."""
    if rounding is None:
        return Vector(transport, pieces, longest)
    return RoundedVector(transport, pieces, longest, rounding)
