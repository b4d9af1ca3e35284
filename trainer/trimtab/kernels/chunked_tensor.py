"""A flat vector that lies in several tensors, so that gradients need not be copied together to be read once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


class ChunkedTensor:
    """Flat float32 tensors end to end, read as one vector of shape [n]."""

    def __init__(self, pieces: Sequence[Tensor]) -> None:
        self.pieces = tuple(pieces)
        self._starts = [0]
        for piece in self.pieces:
            self._starts.append(self._starts[-1] + piece.numel())

    @property
    def device(self) -> torch.device:
        """Device of all pieces."""
        return self.pieces[0].device

    def numel(self) -> int:
        """Return the number of elements in all pieces."""
        return self._starts[-1]

    def new_empty(self, size: int) -> Tensor:
        """Return an uninitialised tensor of shape [size] on the pieces' device."""
        return self.pieces[0].new_empty(size)

    def spans(self) -> Iterator[tuple[int, int, Tensor]]:
        """Yield each piece with the range ``start .. stop-1`` that it holds."""
        yield from zip(self._starts[:-1], self._starts[1:], self.pieces, strict=True)

    def __getitem__(self, span: slice) -> Tensor | ChunkedTensor:
        """Return the elements of a range, without copying: a tensor if one piece holds them all."""
        first, stop, _ = span.indices(self.numel())
        begin = bisect_right(self._starts, first) - 1
        found = []
        for index in range(begin, len(self.pieces)):
            start = self._starts[index]
            if start >= stop:
                break
            found.append(self.pieces[index][max(0, first - start) : stop - start])
        return found[0] if len(found) == 1 else ChunkedTensor(found)


#: A gradient as the passes accept it: one flat tensor, or several end to end.
FlatGrad = Tensor | ChunkedTensor
