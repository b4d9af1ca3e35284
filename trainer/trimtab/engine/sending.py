"""One iteration's sends: which bucket has all that is to be sent of it, and whose turn it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from trimtab.collectives.base import Exchange, Prepared
from trimtab.collectives.group import Group
from trimtab.engine.arena import Arena
from trimtab.engine.buckets import Buckets
from trimtab.engine.flights import Flight, Flights, payload_of
from trimtab.engine.gradients import Gradients
from trimtab.engine.schemes import Schemes
from trimtab.plan import Plan, elements_to_send, split_elements
from trimtab.schedule import Iteration, Send


class Sending:
    """Sends in the order of the schedule, never in that of what happens to be ready."""

    def __init__(
        self,
        arena: Arena,
        buckets: Buckets,
        gradients: Gradients,
        schemes: Schemes,
        links: Sequence[Group],
        plan: Plan,
        iteration: Iteration,
        number: int,
        step: int,
        vote: Callable[[Prepared], Tensor],
    ) -> None:
        """``number`` is the iteration's, as its schedule counts; ``vote`` goes with the last of its sends."""
        self._arena, self._buckets, self._gradients, self._schemes = arena, buckets, gradients, schemes
        self._links, self._plan, self._step, self._vote = links, plan, step, vote
        self._sends = iteration.sends
        self._missing = [bucket.span.last - bucket.span.first for bucket in buckets]
        """By bucket: tensors whose gradient is yet to come."""
        self.present = {send.bucket for send in iteration.sends if send.generation >= number}
        """Buckets whose gradients of this very iteration are sent."""
        self.flights = Flights()

    def gather(self, index: int) -> None:
        """Take tensor ``index``'s gradient, and send what that completes."""
        numbers = self._buckets.of_tensor[index]
        may_lend = not self._plan.is_dense and all(
            number in self.present and not self._buckets[number].waiting for number in numbers
        )
        self._gradients.gather(index, may_lend=may_lend)
        for number in numbers:
            self._missing[number] -= 1
        self._send_ready(backward_has_ended=False)

    def finish(self) -> None:
        """Backward has ended: gather what has no gradient, and send what is left."""
        for index in range(len(self._arena.parameters)):
            if not self._gradients.is_gathered(index):
                self.gather(index)
        self._send_ready(backward_has_ended=True)

    def squared_norm_before(self, last: Prepared) -> float:
        """Of all that this iteration sends, ``last`` being its last bucket; waits until all are compressed."""
        earlier = self.flights[: len(self._sends) - 1]
        norms = (flight.handle.prepared.result().squared_norm_before for flight in earlier)
        return last.squared_norm_before + sum(norms)

    def _send_ready(self, *, backward_has_ended: bool) -> None:
        while len(self.flights) < len(self._sends):
            send = self._sends[len(self.flights)]
            if send.bucket in self.present and (
                self._missing[send.bucket] > 0 or (send.after == "backward" and not backward_has_ended)
            ):
                return
            self.flights.append(self._send(send, is_last=len(self.flights) == len(self._sends) - 1))

    def _send(self, send: Send, *, is_last: bool) -> Flight:
        arena, bucket = self._arena, self._buckets[send.bucket]
        payload = payload_of(bucket, send, arena, self._gradients if send.bucket in self.present else None)
        span = bucket.span
        segments, k = self._selection(span.segments)
        collective, selector = self._schemes.of(self._plan)
        handle = collective.exchange(
            Exchange(
                grad=payload.grad,
                residual=arena.residual[span.start : span.stop],
                next_residual=arena.next_residual[span.start : span.stop],
                out=payload.out,
                segments=segments,
                k=k,
                step=self._step,
                start=span.start,
            ),
            selector,
            vote=self._vote if is_last else None,
            link=self._links[send.link],
        )
        return Flight(send, bucket, payload, handle)

    def _selection(self, segments: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Segments and k of a buffer: per tensor ahead of fusion, as a whole behind it."""
        if self._plan.is_dense or self._plan.fusion.selection == "behind":
            return (0, segments[-1]), (elements_to_send(self._plan.ratio, segments[-1]),)
        return segments, tuple(split_elements(self._plan.ratio, segments))
