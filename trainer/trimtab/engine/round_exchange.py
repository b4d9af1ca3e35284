"""The end of a round of local steps: its updates are exchanged, now or under the next round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from trimtab.engine.arena import Arena
from trimtab.engine.exchanger import Exchanger
from trimtab.engine.local_updates import LocalUpdates
from trimtab.engine.outcome import Outcome
from trimtab.engine.source_change import average_buffers


class RoundExchange:
    """Ends the rounds of one engine."""

    def __init__(self, model: nn.Module, arena: Arena, exchanger: Exchanger, finish: Callable[[], Outcome]) -> None:
        """``finish`` waits for the exchange, and commits or drops it."""
        self._model, self._arena, self._exchanger, self._finish = model, arena, exchanger, finish

    def end(self, local: LocalUpdates) -> Outcome:
        """End a round that another follows, under which its updates may cross."""
        outcome = self._exchange(local)
        if self._exchanger.plan.overlaps_rounds:
            self._exchanger.sending.begin_round()
        return outcome

    def bring_in(self, local: LocalUpdates) -> Outcome | None:
        """Exchange all that local steps have made and the anchor does not have; None where there is nothing."""
        outcome = None
        while local.is_under_way:
            before, outcome = outcome, self._exchange(local)
            if before is not None:
                outcome = replace(outcome, non_finite=before.non_finite or outcome.non_finite)
        if outcome is None:
            return None
        if self._exchanger.plan.overlaps_rounds:
            self._exchanger.buckets.clear()  # of the empty round that brought the last one in
        self._arena.release_gradients()
        return outcome

    def put_aside(self, local: LocalUpdates | None) -> None:
        """Before a trial: ranks' weights are alike, without what is under way, until that is loaded again."""
        if local is not None and self._exchanger.plan.overlaps_rounds:
            self.recall()
            local.abandon()
            self._exchanger.buckets.clear()

    def recall(self) -> None:
        """Nothing is to come of what is under way: its trial has been undone, or the session is over."""
        if self._exchanger.plan.overlaps_rounds:
            self._exchanger.flights.wait()
            self._exchanger.schemes.discard()

    def _exchange(self, local: LocalUpdates) -> Outcome:
        local.put_updates()
        outcome = self._finish()
        if outcome.is_finite:
            local.apply()
            average_buffers(self._model, self._exchanger.group)
            return outcome
        local.abandon()
        if self._exchanger.plan.overlaps_rounds:
            self._exchanger.buckets.clear()  # what was made on top of what is dropped goes with it
        return outcome
