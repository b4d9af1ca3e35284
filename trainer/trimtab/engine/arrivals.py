"""One iteration's means over ranks as they arrive: before the update, or some only before the next forward pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
from torch import Tensor
from trimtab_api.errors import UserError

from trimtab.engine.arena import Arena
from trimtab.engine.flights import Flight, Flights
from trimtab.engine.hand_out import HandOut
from trimtab.engine.phase_clock import PhaseClock

#: Tensors, and elements of each, that tell whether the script has changed gradients.
_SAMPLED_TENSORS, _SAMPLED_ELEMENTS = 8, 16


class Arrivals:
    """Makes each ``grad`` what the optimizer is to see, once all of its tensor has arrived."""

    def __init__(
        self, arena: Arena, handed: HandOut, late: Iterable[Flight], unused: Collection[int], phases: PhaseClock
    ) -> None:
        """``late`` are flights that may arrive after the update; ``unused``, tensors without a gradient on any rank.

        ``phases`` hears of waiting for the former.
        """
        self._arena, self._handed, self._unused, self._phases = arena, handed, unused, phases
        self.late = list(late)
        """What has not been handed out yet."""
        self.came_late = Flights(self.late)
        self._with_any: set[int] = set()
        """Tensors, by index, of which the optimizer gets something."""
        self._sampled: list[int] = []
        self._sample: Tensor | None = None
        """Elements of gradients as they were handed out while others were late."""

    def hand_out(self, num_buckets: int, *, averages: bool, scale: float | None) -> None:
        """Hand out all but what is late, times the loss scale."""
        late = {flight.send.bucket for flight in self.late}
        numbers = [number for number in range(num_buckets) if number not in late]
        self._with_any |= self._handed.write(numbers, averages=averages)
        if scale not in (None, 1.0):
            self._arena.grad.mul_(scale)
        whole = set(range(len(self._arena.parameters))) - self._awaited
        for index in set(range(len(self._arena.parameters))) - self._to_be_seen(whole):
            self._arena.parameters[index].grad = None
        if self.late and (seen := sorted(self._to_be_seen(whole))):
            self._sampled = seen[:: -(-len(seen) // _SAMPLED_TENSORS)]
            self._sample = self._sample_now()

    def check_unchanged(self) -> None:
        """Raise `UserError` where the script has changed gradients while others were late.

        Clipping by a norm that lacks them would be another clipping.
        """
        if self.late and self._sample is not None and not torch.equal(self._sample, self._sample_now()):
            raise UserError(
                "gradients were changed (clipped?) before all had arrived, as the plan's schedule lets some arrive by"
                " the next forward pass; call session.synchronize() after backward(), and change them then",
                field="backward",
            )
        self._sample = None

    def _sample_now(self) -> Tensor:
        flat = map(self._arena.flat_view, self._sampled)
        return torch.cat([each[:: -(-each.numel() // _SAMPLED_ELEMENTS)] for each in flat])

    def due(self, tensors: Collection[int] | None) -> list[Flight]:
        """What is late of ``tensors``, by index; None: of all."""
        return [flight for flight in self.late if tensors is None or _holds(flight, tensors)]

    def hand_out_late(self, tensors: Collection[int] | None, *, averages: bool) -> bool:
        """Wait for what is `due` of ``tensors``, and hand it out; whether there was any."""
        due = self.due(tensors)
        if not due:
            return False
        with self._phases.during("exposed"):
            Flights(due).wait()
        awaited, numbers = self._awaited, {flight.send.bucket for flight in due}
        self.late = [flight for flight in self.late if flight.send.bucket not in numbers]
        self._with_any |= self._handed.write(numbers, averages=averages)
        for index in self._to_be_seen(awaited - self._awaited):
            self._arena.parameters[index].grad = self._arena.views[index]
        return True

    @property
    def _awaited(self) -> set[int]:
        """Tensors of which a part is late."""
        return {index for flight in self.late for index in range(flight.span.first, flight.span.last)}

    def _to_be_seen(self, whole: set[int]) -> set[int]:
        """Those of ``whole`` tensors that the optimizer is to move."""
        return (whole & self._with_any) - set(self._arena.all_zero(sorted(whole.intersection(self._unused))))


def _holds(flight: Flight, tensors: Collection[int]) -> bool:
    return any(index in tensors for index in range(flight.span.first, flight.span.last))
