"""One iteration's sends: which bucket has all that is to be sent of it, and whose turn it is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from trimtab.collectives.base import Exchange, Prepared
from trimtab.engine.exchange.buckets import Buckets
from trimtab.engine.exchange.in_flight import PendingExchange, PendingExchanges, payload_of
from trimtab.engine.exchange.scheme_registry import Schemes
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.gradients.gather import Gradients
from trimtab.engine.gradients.momentum_correction import clip_locally
from trimtab.engine.gradients.participation import ParameterUsage
from trimtab.engine.phase_timer import PhaseTimer
from trimtab.plan.plan import Plan, elements_to_send, split_elements
from trimtab.plan.schedules import Iteration, Schedule, Send
from trimtab.transport.group import Group


@dataclass(frozen=True)
class StepContext:
    """Parts that the exchange of each step uses, from one change of plan to the next."""

    plan: Plan
    schedule: Schedule
    flat_buffers: FlatBuffers
    buckets: Buckets
    gradients: Gradients
    usage: ParameterUsage
    schemes: Schemes
    links: tuple[Group, ...]
    phases: PhaseTimer


class BucketDispatcher:
    """Sends in the order of the schedule, never in that of what happens to be ready."""

    def __init__(
        self, context: StepContext, iteration: Iteration, number: int, step: int, vote: Callable[[], Tensor]
    ) -> None:
        """Prepare the sends of one iteration.

        Args:
            context: What each exchange uses under the present plan.
            iteration: The sends, as the schedule has them.
            number: The iteration's number, as the schedule counts.
            step: The step, which the plan's ratio and the collective depend on.
            vote: Returns this rank's flags, which go with the send `consensus_send_index`.
        """
        self._flat_buffers, self._buckets = context.flat_buffers, context.buckets
        self._gradients, self._schemes = context.gradients, context.schemes
        self._links, self._plan, self._step, self._vote = context.links, context.plan, step, vote
        self._sends = iteration.sends
        self._missing = [bucket.span.last - bucket.span.first for bucket in context.buckets]
        """By bucket: tensors whose gradient is yet to come."""
        self.consensus_send_index = iteration.consensus_send_index
        """Which of the sends carries the vote."""
        self._compressed: list[Future[float]] = [Future() for _ in iteration.sends]
        """Squared norm before selection of each send, once it is compressed."""
        self.present = {send.bucket for send in iteration.sends if send.iteration >= number}
        """Buckets whose gradients of this very iteration are sent."""
        self.pending_exchanges = PendingExchanges()

    @property
    def can_begin(self) -> bool:
        """True if the first of the sends is of gradients that wait since an earlier iteration."""
        return bool(self._sends) and self._sends[0].bucket not in self.present

    def begin_round(self) -> None:
        """Send the whole update of the last round, with the vote: the next round of local steps has begun."""
        assert not self.present, "the updates of a round are not known before it ends"
        while len(self.pending_exchanges) < len(self._sends):
            self._append()

    def begin(self) -> None:
        """Send what waits, up to the send that carries the vote: the forward pass has begun."""
        while (index := len(self.pending_exchanges)) < self.consensus_send_index:
            if self._sends[index].bucket in self.present:
                return
            self._append()

    def gather(self, index: int) -> None:
        """Take tensor ``index``'s gradient, and send what that completes."""
        numbers = self._buckets.of_tensor[index]
        can_alias = not (self._plan.is_dense or self._plan.clip) and all(
            number in self.present and not self._buckets[number].waiting for number in numbers
        )
        self._gradients.gather(index, can_alias=can_alias)
        for number in numbers:
            self._missing[number] -= 1
        self._send_ready(backward_has_ended=False)

    def finish(self) -> None:
        """Gather what has no gradient, and send what is left: backward has ended."""
        for index in range(len(self._flat_buffers.parameters)):
            if not self._gradients.is_gathered(index):
                self.gather(index)
        if self._plan.clip:
            clip_locally(self._flat_buffers.grad, self._plan.clip, self._links[0].size)
        self._send_ready(backward_has_ended=True)

    @property
    def deferred(self) -> list[PendingExchange]:
        """Exchanges that have been sent and may arrive after the update."""
        return [
            exchange
            for index, exchange in enumerate(self.pending_exchanges)
            if exchange.send.arrives == "forward" and index != self.consensus_send_index
        ]

    @property
    def sends_all(self) -> bool:
        """True if the gradients of the present iteration are sent in it, all of them."""
        return len(self.present) == len(self._buckets)

    @property
    def squared_norm_before(self) -> float:
        """Squared norm of all that this iteration sends, before selection; waits until all is compressed."""
        return sum(norm.result() for norm in self._compressed)

    def _send_ready(self, *, backward_has_ended: bool) -> None:
        while (index := len(self.pending_exchanges)) < len(self._sends):
            send = self._sends[index]
            is_present = send.bucket in self.present
            is_early_vote = index == self.consensus_send_index < len(self._sends) - 1
            awaits_end = (is_present and send.after == "backward") or is_early_vote
            if (is_present and self._missing[send.bucket] > 0) or (awaits_end and not backward_has_ended):
                return
            self._append()

    def _append(self) -> None:
        """Send what is next."""
        index = len(self.pending_exchanges)
        if not self.pending_exchanges:
            self._flat_buffers.follow_freezing()
        pending_exchange = self._send(self._sends[index], carries_vote=index == self.consensus_send_index)
        pending_exchange.handle.prepared.add_done_callback(partial(_tell_norm, self._compressed[index]))
        self.pending_exchanges.append(pending_exchange)

    def _send(self, send: Send, *, carries_vote: bool) -> PendingExchange:
        flat_buffers, bucket = self._flat_buffers, self._buckets[send.bucket]
        payload = payload_of(bucket, send, flat_buffers, self._gradients if send.bucket in self.present else None)
        span = bucket.span
        grad = payload.grad
        if (velocity := self._schemes.velocity) is not None:
            grad = velocity.corrected(span, grad, self._plan.momentum)
        segments, k = self._selection(span.segments)
        collective, selector = self._schemes.of(self._plan)
        handle = collective.exchange(
            Exchange(
                grad=grad,
                residual=flat_buffers.residual[span.start : span.stop],
                next_residual=flat_buffers.next_residual[span.start : span.stop],
                out=payload.out,
                segments=segments,
                k=k,
                step=self._step,
                start=span.start,
                wire=self._plan.wire,
            ),
            selector,
            vote=self._vote if carries_vote else None,
            link=self._links[send.link],
        )
        return PendingExchange(send, bucket, payload, handle)

    def _selection(self, segments: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return segments and k of a buffer: per tensor ahead of fusion, as a whole behind it."""
        ratio = self._plan.ratio_at(self._step)
        if self._plan.is_dense or self._plan.fusion.selection == "behind":
            return (0, segments[-1]), (elements_to_send(ratio, segments[-1]),)
        return segments, tuple(split_elements(ratio, segments))


def _tell_norm(norm: Future[float], prepared: Future[Prepared]) -> None:
    """Hand on a bucket's squared norm before selection, or the error that compressing it raised."""
    error = prepared.exception()
    if error is None:
        norm.set_result(prepared.result().squared_norm_before)
    else:
        norm.set_exception(error)
