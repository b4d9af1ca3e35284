"""The pending step: ``backward()`` has run and ``optimizer.step()`` has not, and the script may discard it.

A script that leaves out a batch whose gradient is too large, or needs a backward pass only to change its inputs, clears
the gradients and takes no step. Then what was exchanged is forgotten, residuals stay what they were, and the step
begins anew. It must not be mistaken for a step that the session does not see, of an optimizer that was not attached, or
by hand: that one changes the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from trimtab_api.errors import UserError

from trimtab.engine.exchange.exchanger import Exchanger
from trimtab.engine.exchange.weight_fingerprint import WeightFingerprint
from trimtab.engine.step_state import StepEvent, StepProgress, StepState


class PendingStep:
    """The present step of one engine, from its first backward pass on."""

    def __init__(
        self,
        exchanger: Exchanger,
        optimizers: Sequence[torch.optim.Optimizer],
        progress: StepProgress,
        *,
        alternating_optimizers: bool,
    ) -> None:
        """``optimizers`` step the weights, and ``progress`` is the step's state.

        With ``alternating_optimizers`` an optimizer's step makes the exchange; backward passes without one add up.
        """
        self._exchanger, self._optimizers, self._progress = exchanger, optimizers, progress
        self._alternating_optimizers = alternating_optimizers
        self._parameters = exchanger.flat_buffers.parameters
        self.num_discarded = 0
        """Exchanges that were forgotten, on every rank as many."""
        self._num_passes = -1
        """Passes that had ended when the last one began."""
        self._versions = 0
        """Versions of the weights, added up, when the last backward pass began."""
        self._weights: WeightFingerprint | None = None
        """The weights then; known only where the pass before it had been without a step."""

    @property
    def has_begun(self) -> bool:
        """True if a backward pass has begun, and no step has followed."""
        return self._progress.has_begun

    @property
    def is_pending(self) -> bool:
        """True if one of the step's backward passes was outside of `no_sync`."""
        return self._progress.is_pending

    def end(self) -> None:
        """End the pending step: it has been taken, or is not to be."""
        self._progress.on(StepEvent.END)

    def leave(self) -> None:
        """Note that, within a round, the script has asked for a batch after a pass, and taken no step."""
        self._progress.on(StepEvent.BATCH)

    def pass_begins(self, index: int) -> None:
        """Note that a backward pass has begun with tensor ``index``'s gradient.

        Raises:
            UserError: Weights have changed without a step, or gradients of an exchange are still there.
        """
        was_left = self._progress.state is StepState.LEFT
        self._progress.on(StepEvent.PASS)
        if self._alternating_optimizers or self._num_passes == self._exchanger.passes.num_ended:
            return  # in the latter case it is inside of another, as checkpointing has them
        self._num_passes = self._exchanger.passes.num_ended
        if self.is_pending:
            self.check_weights()
        if was_left and not self._is_cleared(index):
            raise self._refusal(index, "is still that of the previous backward pass")
        if self._exchanger.outcome is not None:
            if not self._is_cleared(index):
                raise self._refusal(index, "is still the mean over ranks of the previous backward pass")
            self.discard()
        self._versions = self._present_versions()
        self._weights = WeightFingerprint.of(self._parameters) if self.is_pending else None
        if not self._exchanger.passes.accumulates:
            self._progress.on(StepEvent.LAST_PASS)

    def _refusal(self, index: int, what: str) -> UserError:
        return UserError(
            f"its gradient {what}, and no step followed. If several passes belong to one step, wrap all"
            " but the last in session.no_sync(). If the step is to be discarded, clear the gradients or"
            " call session.skip()",
            field="backward",
            value=self._exchanger.flat_buffers.names[index],
        )

    def discard(self) -> None:
        """Forget what was exchanged for the step, which begins anew; every rank does so.

        What rank 0 has to say after that exchange it says after the next.
        """
        if not self._alternating_optimizers:
            self._exchanger.discard()
            self.num_discarded += 1

    def forget(self) -> None:
        """Drop a step that was thrown away, before another plan cuts the memory that its exchanges write to."""
        if self._exchanger.outcome is not None:
            self._exchanger.forget()
        self.end()

    def check_weights(self) -> None:
        """Raise `UserError` if weights have changed since the last backward pass began, though no optimizer stepped.

        What is written past autograd, by way of ``data``, shows only where the pass before was without a step too. In
        a trial the weights are the session's to change.
        """
        is_same = self._versions == self._present_versions()
        if is_same and self._weights is not None:
            is_same = self._weights == WeightFingerprint.of(self._parameters)
        if is_same or self._exchanger.step_tag.trial:
            return
        raise UserError(
            "weights changed after backward(), but no optimizer of this session stepped. If you created a"
            " new optimizer, call session.close() and attach again. If you change weights yourself, use"
            " attach(model) without an optimizer, and call session.step() after each change. If you moved"
            " weights for one pass and put them back, call session.skip() after that pass",
            field="backward",
        )

    def _present_versions(self) -> int:
        return sum(parameter._version for parameter in self._parameters)

    def _is_cleared(self, index: int) -> bool:
        """Return whether gradients were cleared before the pass that has just given tensor ``index``'s.

        Those that no optimizer steps need not be: an optimizer's ``zero_grad()`` leaves them.
        """
        own, view = self._parameters[index].grad, self._exchanger.flat_buffers.views[index]
        is_new = own is None or own.data_ptr() != view.data_ptr()
        groups = [group for each in self._optimizers for group in each.param_groups]
        stepped = {id(each) for group in groups for each in group["params"]}
        others = [p.grad for i, p in enumerate(self._parameters) if i != index and id(p) in stepped]
        if any(grad is not None for grad in others):
            return not any(bool(grad.any()) for grad in others if grad is not None)
        return is_new or id(self._parameters[index]) not in stepped
