"""Flat storage of gradients and residuals in backward order (last layer first).

Every parameter's ``grad`` is a view into one flat buffer, so a fusion buffer is a slice, a fusion plan a list of cut
points, and changing it moves no data. A tensor's elements lie there as its parameter's do in memory (channels last, for
one): torch's fused optimizers take a gradient in another order for one in the parameter's, and step wrongly. Residuals
lie beside the gradients in a second and a third buffer: the committed one and the one being written, exchanged when a
step commits (nothing is ever rolled back).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from trimtab_api.errors import UserError

from trimtab import kernels
from trimtab.plan.plan import FusionPlan

#: Elements of a buffer at which its indices, 32 bits each, end.
MOST_ELEMENTS = 1 << 31
#: Elements from which a gradient is worth a pass of its own: a second-level cache holds no more.
LEND_FROM = 1 << 17


@dataclass(frozen=True)
class BufferRange:
    """One fusion buffer: elements ``start .. stop-1`` of the flat buffers, of its tensors ``first .. last-1``.

    The first and the last of these may lie partly in the buffers beside it.
    """

    first: int
    last: int
    start: int
    stop: int
    segments: tuple[int, ...]
    """Offsets of the buffer's tensors within it, from 0 to ``stop - start``."""

    @property
    def num_elements(self) -> int:
        """Elements in the buffer."""
        return self.stop - self.start


class FlatBuffers:
    """The gradients and residuals of one model on one device, float32."""

    def __init__(self, named_parameters: Sequence[tuple[str, Parameter]]) -> None:
        """Lay out the trainable parameters, given in the order of registration.

        Raises:
            UserError: A parameter is not float32, devices differ, or no parameter requires a gradient.
        """
        trainable = [(name, p) for name, p in named_parameters if p.requires_grad]
        if not trainable:
            raise UserError("the model has no parameter that requires a gradient", field="model")
        device = trainable[0][1].device
        for name, parameter in trainable:
            if parameter.dtype != torch.float32:
                raise UserError(
                    _to_be_float32(parameter.dtype),
                    field=f"model parameter {name}",
                    value=str(parameter.dtype),
                )
            if parameter.device != device:
                raise UserError(
                    f"all parameters of one process belong on one device ({device})",
                    field=f"model parameter {name}",
                    value=str(parameter.device),
                )
        trainable.reverse()
        self.names = [name for name, _ in trainable]
        self.parameters = [p for _, p in trainable]
        self._known = {id(p) for p in self.parameters}
        self.sizes = [p.numel() for p in self.parameters]
        self._strides = [p.stride() for p in self.parameters]
        self.offsets = [0]
        for size in self.sizes:
            self.offsets.append(self.offsets[-1] + size)
        self.num_elements = self.offsets[-1]
        self.device = device
        self.grad = torch.zeros(self.num_elements, dtype=torch.float32, device=device)
        self.residual = torch.zeros_like(self.grad)
        self.next_residual = torch.zeros_like(self.grad)
        self.set_aside: dict[int, Tensor] = {}
        """By index, residuals of frozen tensors: nothing of them is sent until the tensor learns again."""
        self._frozen_in_round: set[int] = set()
        """Frozen tensors, by index, that local steps had moved in this round: they are exchanged with it once more."""
        self.views = self.views_of(self.grad)

    def __contains__(self, parameter: Parameter) -> bool:
        """Return whether the parameter's gradient has a place here."""
        return id(parameter) in self._known

    def views_of(self, flat: Tensor) -> list[Tensor]:
        """Return each parameter's part of ``flat`` (float32 [n], laid out as ``grad``), in the parameter's shape."""
        return [
            flat[start : start + p.numel()].as_strided(p.shape, torch.empty_like(p).stride())
            for start, p in zip(self.offsets, self.parameters, strict=False)
        ]

    @property
    def tensors(self) -> list[list[Any]]:
        """Name, size and order in memory of each, which what is kept of the flat buffers belongs to; as plain JSON."""
        return [
            [name, size] if p.is_contiguous() else [name, size, list(p.stride())]
            for name, size, p in zip(self.names, self.sizes, self.parameters, strict=True)
        ]

    def flat_view(self, index: int) -> Tensor:
        """Return tensor ``index``'s part of ``grad``, float32 [m]."""
        return self.grad[self.offsets[index] : self.offsets[index + 1]]

    @property
    def frozen(self) -> frozenset[int]:
        """Tensors, by index, that do not learn at present, nor have in this round."""
        still = frozenset(index for index, each in enumerate(self.parameters) if not each.requires_grad)
        return still - self._frozen_in_round

    def note_frozen_in_round(self, indices: set[int]) -> None:
        """Take these frozen tensors for ones that learn, until the next call: local steps have moved them."""
        self._frozen_in_round = indices

    def load_set_aside(self, residuals: Mapping[int, Tensor]) -> None:
        """Set aside these residuals of frozen tensors, by index, and no others."""
        self.set_aside = {index: residual.to(self.device, copy=True) for index, residual in residuals.items()}

    def follow_freezing(self) -> None:
        """Set residuals of frozen tensors aside, and take up those of tensors that learn again.

        Comes before a step's first exchange, for from then on others read and write residuals.
        """
        frozen = self.frozen
        for index in frozen:
            self._freeze(index)
        for index in self.set_aside.keys() - frozen:
            self._residual_of(index).add_(self.set_aside.pop(index))

    def keep_frozen_residual(self, index: int, start: int, part: Tensor) -> None:
        """Keep a mean over ranks that came for a frozen tensor, of the elements from ``start`` on.

        It is the same on every rank, and as a residual of each it comes to the same mean again.
        """
        self._freeze(index)
        begin = start - self.offsets[index]
        self.set_aside[index][begin : begin + part.numel()] += part

    def _freeze(self, index: int) -> None:
        if index not in self.set_aside:
            residual = self._residual_of(index)
            self.set_aside[index] = residual.clone()
            residual.zero_()

    def _residual_of(self, index: int) -> Tensor:
        return self.residual[self.offsets[index] : self.offsets[index + 1]]

    def gather(self, index: int, scale: float = 1.0) -> None:
        """Bring tensor ``index``'s gradient into the flat buffers, times ``scale``, and make ``grad`` the view of it.

        Wherever autograd left the gradient: in the flat buffers already, in a tensor of its own (after
        ``zero_grad(set_to_none=True)``), or nowhere (a parameter that this step did not use). Raise `UserError` if the
        parameter lies in another order than it did.
        """
        parameter, view = self.parameters[index], self.views[index]
        if parameter.stride() != self._strides[index]:
            raise UserError(
                "has changed its memory format; call model.to(memory_format=...) before attach",
                field=f"model parameter {self.names[index]}",
            )
        grad = parameter.grad
        if grad is None:
            view.zero_()
        elif grad.layout != torch.strided or not _lie_alike(grad, view):
            view.copy_(grad if grad.layout == torch.strided else grad.to_dense()).mul_(scale)
        elif grad.data_ptr() != view.data_ptr():
            kernels.scale_into(_in_memory(grad), self.flat_view(index), scale)
        elif scale != 1.0:
            view.mul_(scale)
        parameter.grad = view

    def kept(self, grad: Tensor | None) -> Tensor | None:
        """Return a parameter's ``grad``, copied if it lies in the flat buffers, which the next exchange overwrites."""
        if grad is None or grad.layout != torch.strided:
            return grad
        is_here = grad.untyped_storage().data_ptr() == self.grad.untyped_storage().data_ptr()
        return grad.clone() if is_here else grad

    def alias_grad(self, index: int) -> Tensor | None:
        """Return tensor ``index``'s gradient where autograd left it, flat, to be read in place of the flat buffers'.

        ``grad`` becomes the flat buffers' view all the same, for the update. None where copying it is as well: small,
        in the flat buffers already, in another order, or missing; and on a GPU, where a copy costs next to nothing, and
        a pass over each tensor launches and a wait of its own.
        """
        parameter, view = self.parameters[index], self.views[index]
        grad = parameter.grad
        if (
            self.device.type == "cuda"
            or grad is None
            or grad.layout != torch.strided
            or grad.numel() < LEND_FROM
            or not _lie_alike(grad, view)
        ):
            return None
        if grad.data_ptr() == view.data_ptr() or parameter.stride() != self._strides[index]:
            return None
        parameter.grad = view
        return _in_memory(grad)

    def all_zero(self, indices: Sequence[int]) -> list[int]:
        """Return the tensors among ``indices`` whose gradients are zero everywhere; one wait for the device."""
        return [
            index for index, has in zip(indices, _each([self.views[i].any() for i in indices]), strict=True) if not has
        ]

    def not_finite(self, flat: Tensor) -> list[int]:
        """Return the tensors that hold an infinity or a NaN in ``flat`` (float32 [n]); one wait for the device."""
        ranges = zip(self.offsets, self.sizes, strict=False)
        finite = _each([torch.isfinite(flat[start : start + size]).all() for start, size in ranges])
        return [index for index, is_finite in enumerate(finite) if not is_finite]

    def release_gradients(self, *, to_zero: bool = False) -> None:
        """Unbind every ``grad``: the next backward pass starts from nothing and copies once; or make them zero."""
        if to_zero:
            self.grad.zero_()
            return
        for parameter in self.parameters:
            parameter.grad = None

    def bind_gradients(self) -> None:
        """Let every ``grad`` be seen, where an exchange left none as well."""
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view

    def commit_residuals(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Make what exchanges of these ranges of elements wrote the residual there."""
        if sum(stop - start for start, stop in ranges) == self.num_elements:
            self.residual, self.next_residual = self.next_residual, self.residual
            return
        for start, stop in ranges:
            self.residual[start:stop] = self.next_residual[start:stop]

    def buffers(self, fusion: FusionPlan) -> list[BufferRange]:
        """Return the fusion buffers that ``fusion`` cuts the flat buffers into.

        Raises:
            UserError: A cut lies beyond the last element, or a buffer is too large for its indices.
        """
        if fusion.cuts[-1] >= self.num_elements:
            raise UserError(
                f"the model has {self.num_elements} elements; cut before the last",
                field="fusion.cuts",
                value=str(fusion.cuts[-1]),
            )
        buffers = fusion.buffers(self.num_elements)
        if (most := max(map(len, buffers))) >= MOST_ELEMENTS:
            raise UserError(
                f"makes a buffer of {most} elements, and indices end at 2^31; write more buffers, or a"
                " spec.communication.fusion.bufferSize of at most 4GB",
                field="fusion",
                value=fusion.planner,
            )
        return [self._range(elements.start, elements.stop) for elements in buffers]

    def _range(self, start: int, stop: int) -> BufferRange:
        first = bisect_right(self.offsets, start) - 1
        last = bisect_left(self.offsets, stop)
        inner = (offset - start for offset in self.offsets[first + 1 : last])
        return BufferRange(first, last, start, stop, (0, *inner, stop - start))


def _to_be_float32(dtype: torch.dtype) -> str:
    """Return what to do about a parameter of another type than float32."""
    if dtype.is_complex:
        return "gradients are exchanged in float32; keep the real and the imaginary part as parameters (view_as_real)"
    if dtype == torch.float64:
        return "gradients are exchanged in float32; call model.float() before attach"
    return "keep parameters in float32 and use autocast for lower precision"


def _lie_alike(one: Tensor, other: Tensor) -> bool:
    """Return whether two strided tensors of one shape have their elements in one order, and no gaps between them."""
    strides = zip(one.stride(), other.stride(), one.shape, strict=True)
    return all(a == b for a, b, length in strides if length > 1)


def _in_memory(dense: Tensor) -> Tensor:
    """Return a flat view of a tensor without gaps: its elements as they lie in memory."""
    return dense.detach().as_strided((dense.numel(),), (1,))


def _each(flags: Sequence[Tensor]) -> list[bool]:
    """Read boolean scalars of one device at once."""
    return torch.stack(list(flags)).tolist() if flags else []
