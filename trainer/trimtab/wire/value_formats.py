"""How float32 values cross: as they are, in bfloat16, or in 8, 4 or 2 bits with a scale for each block.

Rounding is to nearest, and the same wherever the same values are rounded: what it takes is not lost, for the rank that
rounds keeps it in its residual, and so it need not be right on average, as stochastic rounding would make it. No format
makes the error of a block larger than the block, so that error feedback does not feed on itself.

8 and 4 bits are multiples of a step, the block's largest magnitude over 127 or 7. The step is a bfloat16: what was
rounded once is rounded to itself, so that sums may be passed on from rank to rank. 2 bits are a sign and one of two
magnitudes, the means of those in the block that are above its mean magnitude and of those that are not: of selected
values, none of which is near zero.
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
    """How values cross; `decode` of what `encode` made is what was sent of them."""

    is_exact = False

    @abstractmethod
    def num_bytes(self, count: int) -> int:
        """What ``count`` values take: a multiple of 2."""

    @abstractmethod
    def encode(self, values: Tensor) -> Tensor:
        """float32 [m] as uint8 [`num_bytes`]."""

    @abstractmethod
    def decode(self, data: Tensor, count: int) -> Tensor:
        """Inverse of `encode`: float32 [count], as far as it rounds nothing."""

    def round(self, values: Tensor, errors: Tensor) -> Tensor:
        """`encode` that leaves in ``values`` what is sent of them, and adds what rounding takes to ``errors``."""
        coded = self.encode(values)
        sent = self.decode(coded, values.numel())
        errors += values - sent
        values.copy_(sent)
        return coded

    def read(self, data: Tensor, target: Tensor) -> None:
        """`decode` into float32 [m]."""
        target.copy_(self.decode(data, target.numel()))

    def add(self, data: Tensor, target: Tensor) -> None:
        """Add what `decode` makes of it to float32 [m]."""
        target += self.decode(data, target.numel())


class Float32(ValueFormat):
    """As they are."""

    is_exact = True

    def num_bytes(self, count: int) -> int:
        return 4 * count

    def encode(self, values: Tensor) -> Tensor:
        return values.view(torch.uint8)

    def decode(self, data: Tensor, count: int) -> Tensor:
        return data.view(torch.float32)


class BFloat16(ValueFormat):
    """The upper half of each."""

    def num_bytes(self, count: int) -> int:
        return 2 * count

    def encode(self, values: Tensor) -> Tensor:
        return values.to(torch.bfloat16).view(torch.uint8)

    def decode(self, data: Tensor, count: int) -> Tensor:
        return data.view(torch.bfloat16).float()

    def round(self, values: Tensor, errors: Tensor) -> Tensor:
        return kernels.round_to_bfloat16(values, errors).view(torch.uint8)

    def read(self, data: Tensor, target: Tensor) -> None:
        target.copy_(data.view(torch.bfloat16))

    def add(self, data: Tensor, target: Tensor) -> None:
        kernels.add_bfloat16(target, data.view(torch.bfloat16))


class Blocks(ValueFormat):
    """In so few bits, with what each block of values needs to read them ahead of all."""

    def __init__(self, bits: int) -> None:
        """``bits``: 8, 4 or 2."""
        self._bits = bits

    def num_bytes(self, count: int) -> int:
        return block_layout.num_bytes(count, self._bits)

    def encode(self, values: Tensor) -> Tensor:
        return kernels.write_blocks(values.contiguous(), self._bits)

    def decode(self, data: Tensor, count: int) -> Tensor:
        target = torch.empty(count, dtype=torch.float32, device=data.device)
        self.read(data, target)
        return target

    def read(self, data: Tensor, target: Tensor) -> None:
        kernels.read_blocks(data, self._bits, target)


@cache
def format_of(wire: str) -> ValueFormat:
    """The format that a plan's ``wire`` names."""
    made: ValueFormat = wires.create(wire)
    return made


def put_errors(residual: Tensor, indices: Tensor, errors: Tensor) -> float:
    """Keep what rounding took (float32 [m]) where a residual was cleared; returns its squared norm."""
    kernels.put(residual, indices, errors)
    return float(errors.double().square().sum())
