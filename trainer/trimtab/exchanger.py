"""One step's gradients: which buffers are complete, in what order they are sent, and what came of them.

Backward fills the arena tensor by tensor; as soon as a buffer and all before it are complete, it is queued on the
group's communication thread, while backward goes on. The order is the plan's, never that of what happens to be ready.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from trimtab_api.errors import UserError

from trimtab import collectives, sparsify
from trimtab.agreement import Agreement, Note, compares_weights
from trimtab.arena import Arena, BufferRange
from trimtab.backward import BackwardHooks
from trimtab.collectives.base import Collective, Exchange, Exchanged, Handle
from trimtab.collectives.group import Group
from trimtab.collectives.transport import Place
from trimtab.fingerprint import Fingerprint
from trimtab.kernels import Flat, Spliced
from trimtab.participation import FROZEN, HAS_GRADIENT, UNUSED, Participation
from trimtab.plan import Plan, elements_to_send, split_elements
from trimtab.sparsify.base import Selector


@dataclass(frozen=True)
class Outcome:
    """What a step's exchanges brought, before it is committed or dropped."""

    agreement: Agreement
    exchanged: tuple[Exchanged, ...]
    wait_seconds: float
    """How long the training thread stood still for the exchange: what backward did not hide."""
    non_finite: tuple[str, ...] = ()
    """Names of this rank's parameters whose gradients made all ranks drop the step."""

    @property
    def compress_seconds(self) -> float:
        """Selection, packing and unpacking, summed over buffers."""
        return sum(e.compress_seconds for e in self.exchanged)

    @property
    def collective_seconds(self) -> float:
        """Sending and waiting, summed over buffers."""
        return sum(e.collective_seconds for e in self.exchanged)

    @property
    def num_bytes(self) -> int:
        """Bytes this rank sent."""
        return sum(e.num_bytes for e in self.exchanged)

    @property
    def num_messages(self) -> int:
        """Messages on the longest chain, summed over buffers."""
        return sum(e.num_messages for e in self.exchanged)

    @property
    def residual_norm(self) -> float:
        """Norm of this rank's new residual."""
        return float(sum(e.squared_norm_after for e in self.exchanged) ** 0.5)


class Exchanger:
    """Carries out the plan in force for one arena over one group.

    An exchange begins with the first gradient of a backward pass outside of `no_sync` and is finished when that pass
    ends: afterwards every ``grad`` is the mean over ranks, times the loss scale.
    """

    def __init__(
        self,
        arena: Arena,
        group: Group,
        plan: Plan,
        *,
        weights: Callable[[], Iterable[Tensor]],
        loss_scale: Callable[[], float | None] = lambda: None,
        before_backward: Callable[[], None] = lambda: None,
        has_message: Callable[[], bool] = lambda: False,
    ) -> None:
        """``weights`` are those that ranks compare; ``loss_scale`` is a GradScaler's, None without one.

        ``before_backward`` is called before a step's first gradient is touched; ``has_message``, on the communication
        thread, whether a message of rank 0 follows the step.
        """
        self.arena = arena
        self.group = group
        self._weights, self._loss_scale = weights, loss_scale
        self._before_backward, self._has_message = before_backward, has_message
        self._collectives: dict[str, Collective] = {}
        self._selectors: dict[str, Selector] = {}
        self._participation = Participation(arena.names)
        self.adopt(plan)
        self.restart(step=0)
        self._accumulates = False
        self._hooks = BackwardHooks(arena.parameters, self._on_gradient, self._on_backward_end)

    def close(self) -> None:
        """Let go of the parameters."""
        self._hooks.remove()

    # Plans ------------------------------------------------------------------------------------------------------

    def adopt(self, plan: Plan) -> None:
        """Follow ``plan`` from the next step on; moves no data."""
        self._buffers = self.arena.buffers(plan.fusion)
        if plan.collective not in self._collectives:
            self._collectives[plan.collective] = collectives.create(plan.collective, self.group)
        if not plan.is_dense and plan.sparsifier not in self._selectors:
            self._selectors[plan.sparsifier] = sparsify.create(plan.sparsifier)
        self.plan = plan
        self._buffers_of: list[list[int]] = [[] for _ in self.arena.parameters]
        for number, span in enumerate(self._buffers):
            for index in range(span.first, span.last):
                self._buffers_of[index].append(number)

    @property
    def selectors(self) -> list[Selector]:
        """Every sparsifier in use so far: their state belongs to the training state."""
        return list(self._selectors.values())

    @property
    def sparsifiers(self) -> frozenset[str]:
        """The names of `selectors`."""
        return frozenset(self._selectors)

    def forget_sparsifiers_but(self, names: frozenset[str]) -> None:
        """Drop what the others learned, as if no plan had used them; the next `adopt` begins anew."""
        self._selectors = {name: selector for name, selector in self._selectors.items() if name in names}

    # Filling and sending ----------------------------------------------------------------------------------------

    def restart(self, step: int, trial: int = 0) -> None:
        """Begin ``step``, of a trial where that has a number; what has been done of a step is forgotten."""
        self.place = self.group.place = Place(step, self.plan.version, trial)
        self.outcome: Outcome | None = None
        """What the step's exchange brought, once it is finished."""
        self._refusal: UserError | None = None
        """Why the step cannot be finished: gradients are neither a rank's own nor the mean."""
        self._has_begun = False
        self._missing = [span.last - span.first for span in self._buffers]
        self._gathered = [False] * len(self.arena.parameters)
        self._lent: dict[int, Tensor] = {}
        self._handles: list[Handle] = []

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside only accumulate."""
        before, self._accumulates = self._accumulates, True
        try:
            yield
        finally:
            self._accumulates = before

    def _on_gradient(self, index: int) -> None:
        if not self._has_begun:
            self._before_backward()
        if self._gathered[index]:
            self._refusal = UserError(self._why_gathered(), field="backward", value=self.arena.names[index])
            raise self._refusal
        if self._accumulates:
            return
        self._begin()
        self._gather(index)
        self._send_complete_buffers()

    @property
    def is_mid_step(self) -> bool:
        """Whether gradients of the present step have been sent."""
        return self._has_begun

    def _on_backward_end(self) -> None:
        if self._has_begun and not self._accumulates:
            self.finish()

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._scale = self._loss_scale()

    def _why_gathered(self) -> str:
        if self.outcome is None:
            return (
                "had its gradient sent already in a backward pass that has not ended: a pass before ended with an"
                " exception after part of it was sent, or checkpointing gives a shared parameter its gradient in parts."
                " Let the exception end this rank; for the latter use checkpoint(..., use_reentrant=False)"
            )
        return (
            "its gradient is the mean over ranks since the backward pass before: call session.step() between them, and"
            " not optimizer.step(); where several passes belong to one step, wrap all but the last in session.no_sync()"
        )

    def _gather(self, index: int) -> None:
        parameter = self.arena.parameters[index]
        if parameter.grad is not None:
            self._participation.note(index, HAS_GRADIENT)
        else:
            self._participation.note(index, UNUSED if parameter.requires_grad else FROZEN)
        if parameter.requires_grad:
            self.arena.unfreeze(index)
        else:
            self.arena.freeze(index)
        lent = self.arena.lend(index) if self._scale in (None, 1.0) and not self.plan.is_dense else None
        if lent is None:
            self.arena.gather(index, 1.0 / (self._scale or 1.0))
        else:
            self._lent[index] = lent
        self._gathered[index] = True
        for number in self._buffers_of[index]:
            self._missing[number] -= 1

    def _send_complete_buffers(self) -> None:
        while len(self._handles) < len(self._buffers) and self._missing[len(self._handles)] == 0:
            self._handles.append(self._send(len(self._handles)))

    def _send(self, number: int) -> Handle:
        span, plan, arena = self._buffers[number], self.plan, self.arena
        segments, k = self._selection(span)
        out = arena.grad[span.start : span.stop]
        return self._collectives[plan.collective].exchange(
            Exchange(
                grad=self._gradient(span),
                residual=arena.residual[span.start : span.stop],
                next_residual=arena.next_residual[span.start : span.stop],
                out=out,
                segments=segments,
                k=k,
                step=self.place.step,
                start=span.start,
                note=self._note if number == len(self._buffers) - 1 else None,
            ),
            None if plan.is_dense else self._selectors[plan.sparsifier],
        )

    def _gradient(self, span: BufferRange) -> Flat:
        """A buffer's gradient: the arena's, but for the tensors that autograd lends."""
        pieces: list[Tensor] = []
        copied_from = span.start
        for index in range(span.first, span.last):
            if index not in self._lent:
                continue
            start, stop = self.arena.offsets[index : index + 2]
            first, last = max(start, span.start), min(stop, span.stop)
            if copied_from < first:
                pieces.append(self.arena.grad[copied_from:first])
            pieces.append(self._lent[index][first - start : last - start])
            copied_from = last
        if copied_from < span.stop:
            pieces.append(self.arena.grad[copied_from : span.stop])
        return pieces[0] if len(pieces) == 1 else Spliced(pieces)

    def _selection(self, span: BufferRange) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Segments and k of a buffer: per tensor ahead of fusion, as a whole behind it."""
        if self.plan.is_dense or self.plan.fusion.selection == "behind":
            return (0, span.num_elements), (elements_to_send(self.plan.ratio, span.num_elements),)
        return span.segments, tuple(split_elements(self.plan.ratio, span.segments))

    def _note(self, squared_norm_before: float, squared_norm_after: float) -> Tensor:
        """This rank's part of the agreement; runs on the communication thread, after all buffers but the last."""
        earlier = [handle.wait(0) for handle in self._handles[: len(self._buffers) - 1]]
        before = squared_norm_before + sum(e.squared_norm_before for e in earlier)
        after = squared_norm_after + sum(e.squared_norm_after for e in earlier)
        note = Note(
            finite=before - before == 0,  # neither infinite nor not a number
            squared_norm_before=before,
            squared_norm_after=after,
            place=self.place,
            has_message=self._has_message(),
            participation_changed=self._participation.changed,
        )
        if not compares_weights(self.place):
            return note.encode()
        return note.encode_with(Fingerprint.of(self._weights()), self.group.rank, self.group.size)

    # Finishing --------------------------------------------------------------------------------------------------

    def finish(self) -> Outcome:
        """Send what is left (parameters that this step did not use still flush their residual) and wait for all.

        Raises `UserError` where a backward pass has begun and not ended, for its gradients are not whole, and where
        one was refused.
        """
        if self._refusal is not None:
            raise self._refusal
        if self.outcome is not None:
            return self.outcome
        if self._has_begun and self._hooks.is_inside:
            raise UserError(
                "the last pass ended with an exception after part of its gradients were sent, so the step cannot be"
                " finished; let the exception end this rank",
                field="backward",
            )
        self._begin()
        for index, gathered in enumerate(self._gathered):
            if not gathered:
                self._gather(index)
        self._send_complete_buffers()
        began = time.perf_counter()
        exchanged = tuple(handle.wait() for handle in self._handles)
        waited = time.perf_counter() - began
        note = exchanged[-1].note
        assert note is not None, "the last buffer carries the note"
        agreement = Agreement.decode(note, self.group.size, self.place)
        if agreement.participation_changed:
            self._participation.agree(self.group)
        self.outcome = Outcome(agreement, exchanged, waited, () if agreement.finite else self._non_finite(exchanged))
        self._hand_out(agreement.finite)
        return self.outcome

    def _hand_out(self, finite: bool) -> None:
        """Make every ``grad`` what the optimizer is to see."""
        arena = self.arena
        if not finite and self._scale is None:
            arena.release_gradients()  # no optimizer moves, whoever steps it
            return
        if not finite:
            arena.grad.fill_(float("inf"))  # for the scaler of every rank to see, and to back off alike
        elif self._scale not in (None, 1.0):
            arena.grad.mul_(self._scale)
        for index in self._participation.unused:
            if finite and not bool(arena.views[index].any()):
                arena.parameters[index].grad = None

    def commit(self) -> None:
        """Keep the step: its residuals and what the sparsifier learned."""
        self.arena.commit_residuals()
        for selector in self._selectors.values():
            selector.commit()
        self._next_step()

    def drop(self) -> None:
        """Leave everything as it was before the step."""
        for selector in self._selectors.values():
            selector.discard()
        self._next_step()

    def _next_step(self) -> None:
        self.restart(self.place.step + 1, self.place.trial)

    def _non_finite(self, exchanged: Sequence[Exchanged]) -> tuple[str, ...]:
        """Names of this rank's parameters whose accumulation is not finite, judged by what was to become residual.

        Gradients were consumed by the exchange, and a dense scheme leaves no residual: then the update is judged.
        """
        if all(e.squared_norm_before - e.squared_norm_before == 0 for e in exchanged):
            return ()
        source = self.arena.grad if self.plan.is_dense else self.arena.next_residual
        names = tuple(
            name
            for name, start, size in zip(self.arena.names, self.arena.offsets, self.arena.sizes, strict=False)
            if not bool(torch.isfinite(source[start : start + size]).all())
        )
        return names or ("a sum of squares",)
