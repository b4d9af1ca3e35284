"""Momentum correction: the velocity that momentum makes of the gradient is sent, and held back, in its place.

Lin et al., Deep Gradient Compression, ICLR 2018, section 3.2, equations 5 to 7.

On every rank ``u = momentum * u + gradient`` takes the gradient's place, so the residual is the paper's v, what has
been held back of u, and conservation holds for it. Where the residual is cleared, u is as well (momentum factor
masking): a direction that all have followed does not go on by itself. Dense sends everything and clears nothing of u:
it is momentum as SGD has it, averaged over ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.engine.gradients.flat_buffers import BufferRange, FlatBuffers
from trimtab.kernels import FlatGrad
from trimtab.sparsifiers.base import Sent


class MomentumCorrection:
    """u of one rank, beside the flat buffers: proposed in a step, and kept by `commit` alone."""

    def __init__(self, flat_buffers: FlatBuffers) -> None:
        self._flat_buffers = flat_buffers
        self._kept = torch.zeros_like(flat_buffers.grad)
        self._proposed = torch.zeros_like(flat_buffers.grad)

    def corrected(self, span: BufferRange, grad: FlatGrad, momentum: float) -> Tensor:
        """Return the velocity u of one buffer, with this step's gradient in it; to be read until the commit.

        A frozen tensor's u is 0, for nothing may move it.

        Args:
            span: The buffer.
            grad: The buffer's gradient, float32 [n].
            momentum: The factor of the velocity before.

        Returns:
            float32 [n].
        """
        kept, proposed = self._kept[span.start : span.stop], self._proposed[span.start : span.stop]
        spans = [(0, grad.numel(), grad)] if isinstance(grad, Tensor) else grad.spans()
        for start, stop, piece in spans:
            torch.add(piece, kept[start:stop], alpha=momentum, out=proposed[start:stop])
        for index in range(span.first, span.last):
            if not self._flat_buffers.parameters[index].requires_grad:
                first, end = self._flat_buffers.offsets[index : index + 2]
                self._proposed[max(first, span.start) : min(end, span.stop)].zero_()
        return proposed

    def commit(self, sent: Sequence[Sent]) -> None:
        """Keep u of the buffers that were sent, and clear it where their residuals were."""
        for one in sent:
            if one.indices is not None:
                self._proposed[one.start : one.stop][one.indices.long()] = 0.0
        if sum(one.stop - one.start for one in sent) == self._kept.numel():
            self._kept, self._proposed = self._proposed, self._kept
            return
        for one in sent:
            self._kept[one.start : one.stop] = self._proposed[one.start : one.stop]

    def state(self) -> Tensor:
        """Return u as it was committed, float32 [n]."""
        return self._kept

    def load(self, state: Tensor) -> None:
        """Load what `state` returned."""
        self._kept.copy_(state)

    def add(self, state: Tensor, scale: float) -> None:
        """Add another rank's `state`, times ``scale``."""
        self._kept.add_(state.to(self._kept.device), alpha=scale)


@torch.no_grad()
def clip_locally(grad: Tensor, limit: float, num_ranks: int) -> None:
    """Scale one rank's whole gradient (float32 [n]) to an L2 norm of at most ``limit`` / sqrt(N).

    N gradients of independent noise then add up to a norm of at most ``limit`` in their mean's sum (section 3.3 there).
    One that is not finite is left as it is, for the step to be dropped.
    """
    norm = torch.linalg.vector_norm(grad)
    scale = (limit / num_ranks**0.5 / norm).clamp(max=1.0)
    grad.mul_(torch.where(torch.isfinite(norm), scale, torch.ones_like(scale)))
