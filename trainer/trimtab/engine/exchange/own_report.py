"""What this rank reports of itself with each exchange: flags for the consensus, and how the exchange before went."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from torch import Tensor

from trimtab.engine.exchange.consensus import ExchangeSummary, StepFlags, compares_weights
from trimtab.engine.exchange.in_flight import PendingExchanges
from trimtab.engine.exchange.step_exchange import FinishedStep, StepExchange, TrainingSteps
from trimtab.engine.exchange.weight_fingerprint import WeightFingerprint
from trimtab.engine.gradients.participation import ParameterUsage
from trimtab.transport.group import Group


class OwnReport:
    """One rank's part of the consensus, from exchange to exchange."""

    def __init__(
        self,
        group: Group,
        usage: ParameterUsage,
        weights: Callable[[], Iterable[Tensor]],
        has_message: Callable[[], bool],
    ) -> None:
        """``weights`` returns those that ranks compare; ``has_message`` tells whether a message of rank 0 follows."""
        self._group, self._usage, self._weights, self._has_message = group, usage, weights, has_message
        self.own_squared_norm = 0.0
        """Squared norm of what this rank put into the last exchange that was reported."""
        self._ended_at: float | None = None
        """When the last exchange was over, by `time.perf_counter`."""
        self.restart()

    def restart(self, summary: ExchangeSummary | None = None) -> None:
        """Begin anew: nothing is known of an exchange before, or what ``summary`` says."""
        self.summary = ExchangeSummary() if summary is None else summary
        self.came_late = PendingExchanges()
        """Exchanges that arrived after the step before had been reported; they are reported with the present one."""

    def add_loss(self, loss: float | None) -> None:
        """Report the loss of the step or round whose exchange is over."""
        self.summary = replace(self.summary, loss=loss)

    def flags(self, step: StepExchange, steps: TrainingSteps) -> Tensor:
        """Return the flags of ``step`` for all ranks to add up; waits until all buckets are compressed."""
        squared_norm = self.own_squared_norm = step.dispatcher.squared_norm_before
        flags = StepFlags(
            finite=squared_norm - squared_norm == 0,  # neither infinite nor not a number
            step_tag=step.step_tag,
            num_steps=steps.num,
            has_message=self._has_message(),
            participation_changed=self._usage.changed,
            before=self.summary,
        )
        compares = step.step_tag.trial == 0 and compares_weights(steps.first, steps.num)
        weights = WeightFingerprint.of(self._weights()) if compares else None
        return flags.encode(self._group.rank, self._group.size, weights)

    def committed(self, pending: PendingExchanges, finished: FinishedStep) -> None:
        """Report the exchanges of a step that was committed."""
        if pending:
            self.summary = replace(pending.summary(self._ended_at), loss=self.summary.loss)
        self.came_late = finished.arrivals.completed_late
        self._note_end(pending)

    def dropped(self, pending: PendingExchanges) -> None:
        """Report nothing of a step that was dropped."""
        self.restart()
        self._note_end(pending)

    def _note_end(self, pending: PendingExchanges) -> None:
        if pending:
            self._ended_at = pending.ended_at
