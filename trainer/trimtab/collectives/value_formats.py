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
from trimtab_api.catalogue.other_axes import VALUES_PER_BLOCK

from trimtab import kernels


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
        self._scales = 2 if bits == 2 else 1
        """bfloat16 values of each block."""

    def num_bytes(self, count: int) -> int:
        return 2 * (self._scales * _num_blocks(count) + -(-count * self._bits // 16))

    def encode(self, values: Tensor) -> Tensor:
        count = values.numel()
        blocks = values.new_zeros(_num_blocks(count), VALUES_PER_BLOCK)
        blocks.view(-1)[:count] = values
        scales, codes = self._two_bits(blocks, count) if self._bits == 2 else self._steps(blocks)
        packed = _packed(codes.view(-1), self._bits)
        head = scales.reshape(-1).view(torch.uint8)
        return torch.cat([head, packed[: self.num_bytes(count) - head.numel()]])

    def decode(self, data: Tensor, count: int) -> Tensor:
        num_blocks = _num_blocks(count)
        head = 2 * self._scales * num_blocks
        # Copied, for a message may begin it anywhere.
        scales = data[:head].clone().view(torch.bfloat16).float().view(num_blocks, self._scales)
        codes = data.new_zeros(num_blocks * VALUES_PER_BLOCK * self._bits // 8)
        codes[: data.numel() - head] = data[head:]
        read = _unpacked(codes, self._bits).view(num_blocks, VALUES_PER_BLOCK)
        if self._bits == 2:
            magnitudes = torch.where(read >= 2, scales[:, 1:], scales[:, :1])
            values = torch.where(read % 2 == 1, -magnitudes, magnitudes)
        else:
            values = (read.float() - self._middle) * scales
        return values.view(-1)[:count]

    @property
    def _middle(self) -> int:
        """The code of zero; as far from it lie the smallest code that is used and the largest."""
        return (1 << (self._bits - 1)) - 1

    def _steps(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        steps = (blocks.abs().amax(dim=1, keepdim=True) / self._middle).to(torch.bfloat16)
        exact = steps.float()
        multiples = torch.where(exact > 0, blocks / exact, torch.zeros_like(blocks)).round_()
        return steps, (multiples.clamp_(-self._middle, self._middle) + self._middle).to(torch.uint8)

    def _two_bits(self, blocks: Tensor, count: int) -> tuple[Tensor, Tensor]:
        magnitudes = blocks.abs()
        is_value = (torch.arange(blocks.numel(), device=blocks.device) < count).view_as(blocks)
        mean = magnitudes.sum(dim=1, keepdim=True) / is_value.sum(dim=1, keepdim=True).clamp_(min=1)
        is_large = magnitudes > mean
        means = [
            (magnitudes * chosen).sum(dim=1) / chosen.sum(dim=1).clamp_(min=1)
            for chosen in (is_value & ~is_large, is_large)
        ]
        codes = 2 * is_large.to(torch.uint8) + (blocks < 0).to(torch.uint8)
        return torch.stack(means, dim=1).to(torch.bfloat16), codes


@cache
def format_of(wire: str) -> ValueFormat:
    """The format that a plan's ``wire`` names."""
    made: ValueFormat = wires.make(wire)
    return made


def put_errors(residual: Tensor, indices: Tensor, errors: Tensor) -> float:
    """Keep what rounding took (float32 [m]) where a residual was cleared; returns its squared norm."""
    kernels.put(residual, indices, errors)
    return float(errors.double().square().sum())


def _num_blocks(count: int) -> int:
    return -(-count // VALUES_PER_BLOCK)


def _packed(codes: Tensor, bits: int) -> Tensor:
    """uint8 [m], each below 2^bits and m a multiple of what a byte holds, as uint8 [m bits / 8]: the first lowest."""
    per_byte = 8 // bits
    packed = codes[::per_byte].clone()
    for place in range(1, per_byte):
        packed |= codes[place::per_byte] << (bits * place)
    return packed


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    per_byte = 8 // bits
    places = [(packed >> (bits * place)) & ((1 << bits) - 1) for place in range(per_byte)]
    return torch.stack(places, dim=1).view(-1) if per_byte > 1 else packed
