"""The exchange of one step: what has been sent of it, and what came of it once it is finished."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum

from torch import Tensor
from trimtab_api.errors import UserError

from trimtab.engine.exchange.arrivals import Arrivals
from trimtab.engine.exchange.consensus import StepConsensus
from trimtab.engine.exchange.dispatcher import BucketDispatcher, StepContext
from trimtab.engine.exchange.gradient_writer import GradientWriter
from trimtab.engine.exchange.in_flight import PendingExchange, PendingExchanges
from trimtab.engine.exchange.outcome import Outcome, non_finite_parameters
from trimtab.transport.base import StepTag


@dataclass(frozen=True)
class TrainingSteps:
    """The steps of training that one exchange is of: one, or a round of local ones."""

    first: int
    num: int

    @property
    def last(self) -> int:
        """The last of them."""
        return self.first + self.num - 1


@dataclass(frozen=True)
class FinishedStep:
    """A step whose exchanges have arrived, but for deferred ones; buckets change only when it is committed."""

    outcome: Outcome
    writer: GradientWriter
    arrivals: Arrivals


class StepExchange:
    """One step's exchange. `Exchanger` makes another for each step."""

    def __init__(
        self, context: StepContext, iteration_number: int, step_tag: StepTag, vote: Callable[[], Tensor]
    ) -> None:
        """``vote`` gives this rank's flags for the consensus; it is called once all buckets are compressed."""
        self._context, self._number = context, iteration_number
        self.step_tag = step_tag
        self.iteration = context.schedule.iteration(iteration_number)
        self.dispatcher = BucketDispatcher(context, self.iteration, iteration_number, step_tag.step, vote)
        self.finished: FinishedStep | None = None
        self.refusal: UserError | None = None
        """Why the step cannot be finished: gradients are neither a rank's own nor the mean."""

    @property
    def pending(self) -> PendingExchanges:
        """The exchanges that have been sent so far."""
        return self.dispatcher.pending_exchanges

    def refuse(self, refusal: UserError) -> None:
        """Finish no exchange with the gradients of the present pass."""
        self.refusal = refusal

    def send_rest(self, *, is_inside_backward: bool) -> None:
        """Send what is left; parameters that this step did not use still flush their residual.

        Raises:
            UserError: A backward pass was refused, or has begun and not ended: its gradients are not whole.
        """
        if self.refusal is not None:
            raise self.refusal
        gradients = self._context.gradients
        if gradients.has_begun and is_inside_backward:
            raise UserError(
                "the last pass raised an exception after some of its gradients were sent, so the step cannot"
                " finish; let the exception end this rank",
                field="backward",
            )
        gradients.begin()
        self.dispatcher.finish()

    def wait(self, steps: TrainingSteps, arrived_before: PendingExchanges, *, may_defer: bool) -> FinishedStep:
        """Wait for all that the optimizer needs, and agree on it with the other ranks.

        Args:
            steps: The training steps that the exchange is of.
            arrived_before: Deferred exchanges of the step before, which are reported with this one.
            may_defer: Whether the schedule may let some exchanges arrive during the next forward pass.
        """
        context, phases = self._context, self._context.phases
        phases.enter("exposed")
        deferred = self.dispatcher.deferred if may_defer else []
        due = PendingExchanges(exchange for exchange in self.pending if exchange not in deferred)
        due.wait()
        phases.enter("other")
        consensus = self._consensus(steps) if due else None
        is_finite = consensus is None or consensus.finite
        names: tuple[str, ...] = ()
        if not is_finite:
            names = non_finite_parameters(context.flat_buffers, self.pending, context.plan.is_dense)
        # Within a round ranks' weights differ, and what is frozen is not yet common to them.
        frozen = frozenset[int]() if context.plan.local_steps else context.flat_buffers.frozen
        writer = GradientWriter(
            context.flat_buffers, context.buckets, self.pending, self.iteration, self._number, frozen
        )
        deferred = deferred if is_finite else []
        arrivals = Arrivals(context.flat_buffers, writer, deferred, context.usage.unused, phases)
        arrived = PendingExchanges((*arrived_before, *due))
        outcome = Outcome(consensus, arrived, self.updates, names, PendingExchanges(self.pending))
        self.finished = FinishedStep(outcome, writer, arrivals)
        return self.finished

    def write_gradients(self, *, to_zero: bool) -> None:
        """Make every ``grad`` of the finished step what the optimizer is to see.

        Args:
            to_zero: Whether a dropped step leaves zeros, not None, if no loss scale is in use.
        """
        assert self.finished is not None
        context, scale = self._context, self._context.gradients.scale
        if self.finished.outcome.is_finite:
            averages = context.schedule.averages
            self.finished.arrivals.write_gradients(len(context.buckets), averages=averages, scale=scale)
            if scale is not None and not self.updates:
                context.flat_buffers.bind_gradients()  # to zeros: a scaler that sees none refuses to go on
        elif scale is None:
            context.flat_buffers.release_gradients(to_zero=to_zero)
        else:
            context.flat_buffers.grad.fill_(float("inf"))  # for the scaler of every rank to back off alike

    @property
    def updates(self) -> bool:
        """True if the schedule lets the optimizer step."""
        return self.iteration.update is not None

    def deferred(self, tensors: Collection[int] | None = None) -> list[PendingExchange]:
        """Return what of ``tensors``, by index, has yet to be written (None: of all); nothing before `wait`."""
        return [] if self.finished is None else self.finished.arrivals.due(tensors)

    def _consensus(self, steps: TrainingSteps) -> StepConsensus:
        group = self._context.links[0]
        flags = self.pending[self.dispatcher.consensus_send_index].handle.wait().vote
        consensus = StepConsensus.decode(flags, group.size, self.step_tag, steps.num, steps.last)
        if consensus.participation_changed:
            self._context.usage.agree(group)
        return consensus


class ExchangeMode(Enum):
    """When gradients are exchanged."""

    IN_BACKWARD = "during each backward pass outside of no_sync"
    AT_OPTIMIZER = "when one of several alternating optimizers steps"
    PER_ROUND = "at the end of a round of local steps"
