"""One step's gradients: which buffers are complete, in what order they are sent, and what came of them.

Backward fills the arena tensor by tensor; as soon as a buffer and all before it are complete, it is queued on the
group's communication thread, while backward goes on. The order is the plan's, never that of what happens to be ready.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from trimtab_api.errors import UserError

from trimtab import collectives, sparsify
from trimtab.agreement import Agreement, Note
from trimtab.arena import Arena, BufferRange
from trimtab.collectives.base import Collective, Exchange, Exchanged, Handle
from trimtab.collectives.group import Group
from trimtab.kernels import Flat, Spliced
from trimtab.plan import Plan, elements_to_send, split_elements
from trimtab.sparsify.base import Selector


@dataclass(frozen=True)
class Outcome:
    """What a step's exchanges brought, before it is committed or dropped."""

    agreement: Agreement
    exchanged: tuple[Exchanged, ...]
    wait_seconds: float
    """How long the training thread stood still for the exchange: what backward did not hide."""

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
    """Carries out the plan in force for one arena over one group."""

    def __init__(self, arena: Arena, group: Group, plan: Plan) -> None:
        self.arena = arena
        self.group = group
        self._collectives: dict[str, Collective] = {}
        self._selectors: dict[str, Selector] = {}
        self.has_message: Callable[[], bool] = lambda: False
        self.adopt(plan)
        self._begin(step=0)
        self.enabled = True
        self.gradient_scale: Callable[[], float] = lambda: 1.0
        for index, parameter in enumerate(arena.parameters):
            parameter.register_post_accumulate_grad_hook(self._hook(index))

    # Plans ------------------------------------------------------------------------------------------------------

    def adopt(self, plan: Plan) -> None:
        """Follow ``plan`` from the next step on; moves no data."""
        self._buffers = self.arena.buffers(plan.fusion)
        if plan.collective not in self._collectives:
            self._collectives[plan.collective] = collectives.create(plan.collective, self.group)
        if not plan.is_dense and plan.sparsifier not in self._selectors:
            self._selectors[plan.sparsifier] = sparsify.create(plan.sparsifier)
        self.plan = plan
        self._buffer_of = [b for b, span in enumerate(self._buffers) for _ in range(span.first, span.last)]

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

    def _begin(self, step: int) -> None:
        self._step = step
        self._missing = [span.last - span.first for span in self._buffers]
        self._gathered = [False] * len(self.arena.parameters)
        self._lent: dict[int, Tensor] = {}
        self._handles: list[Handle] = []

    def _hook(self, index: int) -> Callable[[Tensor], None]:
        def on_gradient(_: Tensor) -> None:
            if not self.enabled:
                return
            if self._gathered[index]:
                raise UserError(
                    "wrap all backward passes but the last before session.step() in session.no_sync()",
                    field="backward",
                    value=self.arena.names[index],
                )
            self._gather(index)
            self._send_complete_buffers()

        return on_gradient

    def _gather(self, index: int) -> None:
        scale = self.gradient_scale()
        lent = self.arena.lend(index) if scale == 1.0 and not self.plan.is_dense else None
        if lent is None:
            self.arena.gather(index, scale)
        else:
            self._lent[index] = lent
        self._gathered[index] = True
        self._missing[self._buffer_of[index]] -= 1

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
                step=self._step,
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
            if copied_from < start:
                pieces.append(self.arena.grad[copied_from:start])
            pieces.append(self._lent.pop(index))
            copied_from = stop
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
        return Note(
            finite=before - before == 0,  # neither infinite nor not a number
            squared_norm_before=before,
            squared_norm_after=after,
            plan_version=self.plan.version,
            step=self._step,
            has_message=self.has_message(),
        ).encode()

    # Finishing --------------------------------------------------------------------------------------------------

    def finish(self) -> Outcome:
        """Send what is left (parameters that this step did not use still flush their residual) and wait for all."""
        for index, gathered in enumerate(self._gathered):
            if not gathered:
                self._gather(index)
        self._send_complete_buffers()
        began = time.perf_counter()
        exchanged = tuple(handle.wait() for handle in self._handles)
        waited = time.perf_counter() - began
        note = exchanged[-1].note
        assert note is not None, "the last buffer carries the note"
        agreement = Agreement.decode(note, self.group.size, self.plan.version, self._step)
        return Outcome(agreement, exchanged, waited)

    def commit(self) -> None:
        """Keep the step: its residuals and what the sparsifier learned."""
        self.arena.commit_residuals()
        for selector in self._selectors.values():
            selector.commit()
        self._begin(self._step + 1)

    def drop(self) -> None:
        """Leave everything as it was before the step."""
        for selector in self._selectors.values():
            selector.discard()
        self._begin(self._step + 1)

    def restart(self, step: int) -> None:
        """Go back to ``step``, after a snapshot was restored."""
        self._begin(step)

    def non_finite_parameters(self) -> list[str]:
        """Names of this rank's parameters whose accumulation is not finite, judged by what was to become residual.

        Gradients were consumed by the exchange, and a dense scheme leaves no residual: then the update is judged.
        """
        source = self.arena.grad if self.plan.is_dense else self.arena.next_residual
        return [
            name
            for name, start, size in zip(self.arena.names, self.arena.offsets, self.arena.sizes, strict=False)
            if not bool(torch.isfinite(source[start : start + size]).all())
        ]
