"""How a step's gradients get from where autograd leaves them to where an exchange reads them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from trimtab_api.errors import UserError

from trimtab.engine.gradients.flat_buffers import BufferRange, FlatBuffers
from trimtab.engine.gradients.participation import FROZEN, HAS_GRADIENT, UNUSED, ParameterUsage
from trimtab.kernels import ChunkedTensor, FlatGrad


class Gradients:
    """The gradients of one step: which have been gathered, and where they lie."""

    def __init__(
        self, flat_buffers: FlatBuffers, participation: ParameterUsage, loss_scale: Callable[[], float | None]
    ) -> None:
        """``loss_scale`` is a GradScaler's, None without one."""
        self._flat_buffers, self._participation, self._loss_scale = flat_buffers, participation, loss_scale
        self.restart()

    def restart(self) -> None:
        """Begin a step."""
        self.scale: float | None = None
        """Loss scale of this step; None without one."""
        self.has_begun = False
        self._gathered = [False] * len(self._flat_buffers.parameters)
        self._aliased: dict[int, Tensor] = {}

    def begin(self) -> None:
        """Take note of the loss scale, when the step's first gradient has come, or its end without any."""
        if not self.has_begun:
            self.has_begun = True
            self.scale = self._loss_scale()

    def is_gathered(self, index: int) -> bool:
        """Return whether tensor ``index`` has been gathered in this step."""
        return self._gathered[index]

    def check_not_gathered(self, index: int) -> None:
        """Raise `UserError` if tensor ``index`` has been gathered in this step: a gradient comes once a step."""
        if self._gathered[index]:
            raise UserError(
                "already sent its gradient in a backward pass that has not ended. If an earlier pass raised"
                " an exception, let the exception end this rank. If checkpointing computes the gradient of a"
                " shared parameter in parts, use checkpoint(..., use_reentrant=False)",
                field="backward",
                value=self._flat_buffers.names[index],
            )

    def gather(self, index: int, *, can_alias: bool) -> None:
        """Bring tensor ``index``'s gradient into the flat buffers, without the loss scale.

        With ``can_alias`` it stays where autograd left it, to be read there, if a copy would cost.
        """
        flat_buffers, parameter = self._flat_buffers, self._flat_buffers.parameters[index]
        if parameter.grad is not None:
            self._participation.note(index, HAS_GRADIENT)
        else:
            self._participation.note(index, UNUSED if parameter.requires_grad else FROZEN)
        aliased = flat_buffers.alias_grad(index) if can_alias and self.scale in (None, 1.0) else None
        if aliased is None:
            flat_buffers.gather(index, 1.0 / (self.scale or 1.0))
        else:
            self._aliased[index] = aliased
        self._gathered[index] = True

    def of(self, span: BufferRange) -> FlatGrad:
        """Return a buffer's gradient, float32 [n]: the flat buffers', but for the tensors that are aliased."""
        pieces: list[Tensor] = []
        copied_from = span.start
        for index in range(span.first, span.last):
            if index not in self._aliased:
                continue
            start, stop = self._flat_buffers.offsets[index : index + 2]
            first, last = max(start, span.start), min(stop, span.stop)
            if copied_from < first:
                pieces.append(self._flat_buffers.grad[copied_from:first])
            pieces.append(self._aliased[index][first - start : last - start])
            copied_from = last
        if copied_from < span.stop:
            pieces.append(self._flat_buffers.grad[copied_from : span.stop])
        return pieces[0] if len(pieces) == 1 else ChunkedTensor(pieces)
