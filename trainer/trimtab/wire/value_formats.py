"""Value formats: float32 values are sent as they are, in bfloat16, or in 8, 4 or 2 bits with a scale for each block.

Rounding is to nearest, and the same wherever the same values are rounded. The rank that rounds keeps the error in its
residual. Rounding therefore need not be right on average, as stochastic rounding would make it. No format makes the
error of a block larger than the block, so that error feedback does not feed on itself.

8 and 4 bits are multiples of a step, the block's largest magnitude over 127 or 7. The step is a bfloat16: what was
rounded once is rounded to itself, so that sums may be passed on from rank to rank. 2 bits are a sign and one of two
magnitudes: the mean of the block's magnitudes above their mean, and the mean of the others. That suits selected values,
none of which is near zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache

import torch
from torch import Tensor
from trimtab_api.catalogue import wires

from trimtab import kernels
from trimtab.kernels import block_layout


class ValueFormat(ABC):
    """A code of float32 values; `decode` returns the values as they were sent."""

    is_exact = False

    @abstractmethod
    def num_bytes(self, count: int) -> int:
        """Return the bytes of ``count`` coded values: a multiple of 2."""

    @abstractmethod
    def encode(self, values: Tensor) -> Tensor:
        """Code float32 [m] as uint8 [`num_bytes`]."""

    @abstractmethod
    def decode(self, data: Tensor, count: int) -> Tensor:
        """Return ``count`` values (float32) of what `encode` made, rounding errors included."""

    def round(self, values: Tensor, errors: Tensor) -> Tensor:
        """Encode ``values``, leave in them what is sent, and add the rounding errors to ``errors``."""
        coded = self.encode(values)
        sent = self.decode(coded, values.numel())
        errors += values - sent
        values.copy_(sent)
        return coded

    def read(self, data: Tensor, target: Tensor) -> None:
        """Decode into ``target``, float32 [m]."""
        target.copy_(self.decode(data, target.numel()))

    def add(self, data: Tensor, target: Tensor) -> None:
        """Decode, and add to ``target``, float32 [m]."""
        target += self.decode(data, target.numel())


class Float32(ValueFormat):
    """Values as they are."""

    is_exact = True

    def num_bytes(self, count: int) -> int:
        """See `ValueFormat.num_bytes`."""
        return 4 * count

    def encode(self, values: Tensor) -> Tensor:
        """See `ValueFormat.encode`."""
        return values.view(torch.uint8)

    def decode(self, data: Tensor, count: int) -> Tensor:
        """See `ValueFormat.decode`."""
        return data.view(torch.float32)


class BFloat16(ValueFormat):
    """The upper half of each value."""

    def num_bytes(self, count: int) -> int:
        """See `ValueFormat.num_bytes`."""
        return 2 * count

    def encode(self, values: Tensor) -> Tensor:
        """See `ValueFormat.encode`."""
        return values.to(torch.bfloat16).view(torch.uint8)

    def decode(self, data: Tensor, count: int) -> Tensor:
        """See `ValueFormat.decode`."""
        return data.view(torch.bfloat16).float()

    def round(self, values: Tensor, errors: Tensor) -> Tensor:
        """See `ValueFormat.round`."""
        return kernels.round_to_bfloat16(values, errors).view(torch.uint8)

    def read(self, data: Tensor, target: Tensor) -> None:
        """See `ValueFormat.read`."""
        target.copy_(data.view(torch.bfloat16))

    def add(self, data: Tensor, target: Tensor) -> None:
        """See `ValueFormat.add`."""
        kernels.add_bfloat16(target, data.view(torch.bfloat16))


class Blocks(ValueFormat):
    """Values in 8, 4 or 2 bits, behind the scales of all blocks."""

    def __init__(self, bits: int) -> None:
        """Make the format of ``bits``: 8, 4 or 2."""
        self._bits = bits

    def num_bytes(self, count: int) -> int:
        """See `ValueFormat.num_bytes`."""
        return block_layout.num_bytes(count, self._bits)

    def encode(self, values: Tensor) -> Tensor:
        """See `ValueFormat.encode`."""
        return kernels.write_blocks(values.contiguous(), self._bits)

    def decode(self, data: Tensor, count: int) -> Tensor:
        """See `ValueFormat.decode`."""
        target = torch.empty(count, dtype=torch.float32, device=data.device)
        self.read(data, target)
        return target

    def read(self, data: Tensor, target: Tensor) -> None:
        """See `ValueFormat.read`."""
        kernels.read_blocks(data, self._bits, target)


@cache
def format_of(wire: str) -> ValueFormat:
    """Return the format that a plan's ``wire`` names."""
    made: ValueFormat = wires.create(wire)
    return made


def put_errors(residual: Tensor, indices: Tensor, errors: Tensor) -> float:
    """Put rounding errors (float32 [m]) where a residual was cleared, and return their squared norm."""
    kernels.put(residual, indices, errors)
    return float(errors.double().square().sum())
