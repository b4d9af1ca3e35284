"""One iteration's gradients: what the schedule has sent of them, in what order, and what came of it.

Backward fills the flat buffers tensor by tensor. As soon as the next bucket in the schedule's order is filled, its
exchange is queued, while backward goes on: it is compressed on one thread and sent on another. The order is
the plan's, never that of what happens to be ready.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from trimtab_api.catalogue import schedules
from trimtab_api.errors import UserError

from trimtab.engine.deferred.arrivals import Arrivals
from trimtab.engine.exchange.buckets import Buckets
from trimtab.engine.exchange.consensus import ExchangeSummary, StepConsensus, StepFlags, compares_weights
from trimtab.engine.exchange.dispatcher import BucketDispatcher
from trimtab.engine.exchange.gradient_writer import GradientWriter
from trimtab.engine.exchange.in_flight import PendingExchange, PendingExchanges
from trimtab.engine.exchange.outcome import Outcome, non_finite_parameters
from trimtab.engine.exchange.scheme_registry import Schemes
from trimtab.engine.exchange.weight_fingerprint import WeightFingerprint
from trimtab.engine.gradients.autograd_hooks import BackwardHooks
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.gradients.gather import Gradients
from trimtab.engine.gradients.participation import ParameterUsage
from trimtab.engine.profiling.phase_timer import PhaseTimer
from trimtab.engine.profiling.profiler import StepProfiler
from trimtab.plan import schedules as schedule
from trimtab.plan.plan import Plan
from trimtab.plan.schedules import Schedule
from trimtab.sparsifiers.base import Sent
from trimtab.transport.base import StepTag
from trimtab.transport.group import Group


class Exchanger:
    """Carries out the plan in force for one set of flat buffers over one group.

    An exchange begins with the first gradient of a backward pass outside of `no_sync` and is finished when that pass
    ends: afterwards every ``grad`` is what the optimizer is to see, times the loss scale. Under the default schedule
    that is the mean over ranks.
    """

    def __init__(
        self,
        flat_buffers: FlatBuffers,
        group: Group,
        plan: Plan,
        *,
        weights: Callable[[], Iterable[Tensor]],
        loss_scale: Callable[[], float | None] = lambda: None,
        before_backward: Callable[[int], None] = lambda _: None,
        has_message: Callable[[], bool] = lambda: False,
        profiler: StepProfiler | None = None,
        phases: PhaseTimer | None = None,
    ) -> None:
        """``weights`` are those that ranks compare; ``loss_scale`` is a GradScaler's, None without one.

        ``before_backward`` takes the index of each pass's first gradient; ``has_message``, on the communication thread,
        says whether a message of rank 0 follows the step. ``phases`` hears of backward passes and of waiting.
        """
        self.flat_buffers, self.group = flat_buffers, group
        self._links = (group, *group.extra_links)
        self._weights, self._has_message, self._before_backward = weights, has_message, before_backward
        self._phases = phases or PhaseTimer()
        self.schemes = Schemes(group, flat_buffers)
        self.participation = ParameterUsage(flat_buffers.names)
        self._gradients = Gradients(flat_buffers, self.participation, loss_scale)
        self.buckets = Buckets(flat_buffers, [])
        self._schedule: Schedule = schedule.create(schedules.default, 0)
        self._summary = ExchangeSummary()
        self._came_late = PendingExchanges()
        """What arrived after the step before had been told of; it is told with the present one."""
        self._ended_at: float | None = None
        """When the last exchange was over, by `time.perf_counter`."""
        self.training_step = 0
        """The first of those that the next exchange is of; a `step_tag` counts exchanges."""
        self.num_steps = 1
        """How many these are."""
        self.adopt(plan)
        self.restart(step=0)
        self.own_squared_norm = 0.0
        """Of what this rank put into the last exchange that was told of."""
        self.exchanges_in_backward = True
        """Whether a backward pass outside of `no_sync` exchanges its gradients; else only `finish` does."""
        self._pass: int | None = None
        """The backward pass under way, as autograd numbers it; passes inside of one have numbers of their own."""
        self.by_hand = False
        """Whether the script changes the weights by itself, as soon as ``backward()`` has returned."""
        self.accumulates = False
        """Whether backward passes only accumulate."""
        self.allows_late: Callable[[], bool] = lambda: True
        """Whether the optimizer may step what a schedule lets arrive later after the rest."""
        on_gradient = self._on_gradient if profiler is None else profiler.watched(self._on_gradient)
        self.backward = BackwardHooks(flat_buffers.parameters, on_gradient, self._on_backward_end)

    def close(self) -> None:
        """Let go of the parameters."""
        self.backward.remove()

    # Plans ------------------------------------------------------------------------------------------------------

    def adopt(self, plan: Plan) -> None:
        """Follow ``plan`` from the next `restart` on; moves only what waits. Nothing may be `late`."""
        buckets = Buckets(self.flat_buffers, self.flat_buffers.buffers(plan.fusion))
        self.schemes.adopt(plan, self.buckets.ranges, buckets.ranges)
        timetable = plan.timetable
        if timetable is not None:
            self._links = self.group.join_links(timetable.num_links)
            timetable = timetable.within(len(self._links))
        follows = schedule.create(plan.schedule, len(buckets), timetable)
        if not follows.averages:
            self.leave_averages()
        buckets.take_over(self.buckets)
        self.buckets, self._schedule = buckets, follows
        self._iteration_number = 0
        self._summary, self._came_late = ExchangeSummary(), PendingExchanges()
        self.plan = plan

    def leave_averages(self) -> None:
        """Hold what an update would have made of what is held, for what comes next takes all of that as it is."""
        if self._schedule.averages:
            self.buckets.to_means()

    def state_dict(self) -> dict[str, Any]:
        """All that is carried from step to step under the present plan, but for residuals."""
        return {
            "iteration": self._iteration_number,
            "summary": self._summary,
            "buckets": self.buckets.state_dict(),
            "schemes": self.schemes.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`, between steps and under the same plan."""
        self._iteration_number, self._summary = state["iteration"], state["summary"]
        self.buckets.load_state_dict(state["buckets"])
        self.schemes.load_state_dict(state["schemes"])
        self.restart(self.step_tag.step, self.step_tag.trial)

    # Filling and sending ----------------------------------------------------------------------------------------

    def restart(self, step: int, trial: int = 0) -> None:
        """Begin ``step``, of a trial where that has a number; what has been done of a step is forgotten."""
        self.step_tag = StepTag(step, self.plan.version, trial)
        for link in self._links:
            link.step_tag = self.step_tag
        self.outcome: Outcome | None = None
        """What the step's exchange brought, once it is finished."""
        self._refusal: UserError | None = None
        """Why the step cannot be finished: gradients are neither a rank's own nor the mean."""
        self._gradients.restart()
        self._iteration = self._schedule.iteration(self._iteration_number)
        self.sending = BucketDispatcher(
            self.flat_buffers,
            self.buckets,
            self._gradients,
            self.schemes,
            self._links,
            self.plan,
            self._iteration,
            self._iteration_number,
            step,
            self._vote,
        )

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside only accumulate."""
        before, self.accumulates = self.accumulates, True
        try:
            yield
        finally:
            self.accumulates = before

    @property
    def pending_exchanges(self) -> PendingExchanges:
        """The exchanges of the present step, as far as they have been sent."""
        return self.sending.pending_exchanges

    @property
    def is_mid_step(self) -> bool:
        """Whether gradients of the present step have been sent."""
        return self._gradients.has_begun

    def begin(self) -> None:
        """A forward pass of training has begun: send what has waited for the present step."""
        if self.exchanges_in_backward and not self.is_mid_step and self.outcome is None and self.step_tag.trial == 0:
            self.sending.begin()

    def _on_gradient(self, index: int) -> None:
        try:
            if (number := torch._C._current_graph_task_id()) != self._pass:
                self._pass = number
                self._phases.enter("backward")
                self._before_backward(index)
            self._gradients.check_not_gathered(index)
        except UserError as refusal:
            self._refusal = refusal  # should the script go on in spite of it
            raise
        if self.accumulates or not self.exchanges_in_backward:
            return
        self._gradients.begin()
        self.sending.gather(index)

    def _on_backward_end(self) -> None:
        self._phases.enter("forward")
        if self._gradients.has_begun and not self.accumulates:
            self.finish()

    def tell(self, loss: float | None) -> None:
        """The loss of the step or round whose exchange is over, for the next vote to carry."""
        self._summary = replace(self._summary, loss=loss)

    def _vote(self) -> Tensor:
        """This rank's part of what all agree on; on the communication thread, once all buckets are compressed."""
        before = self.own_squared_norm = self.sending.squared_norm_before
        vote = StepFlags(
            finite=before - before == 0,  # neither infinite nor not a number
            step_tag=self.step_tag,
            num_steps=self.num_steps,
            has_message=self._has_message(),
            participation_changed=self.participation.changed,
            before=self._summary,
        )
        compares = self.step_tag.trial == 0 and compares_weights(self.training_step, self.num_steps)
        weights = WeightFingerprint.of(self._weights()) if compares else None
        return vote.encode(self.group.rank, self.group.size, weights)

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
        if self._gradients.has_begun and self.backward.is_inside:
            raise UserError(
                "the last pass ended with an exception after part of its gradients were sent, so the step cannot be"
                " finished; let the exception end this rank",
                field="backward",
            )
        self._gradients.begin()
        self.sending.finish()
        self._phases.enter("exposed")
        late = self.sending.late
        late = late if late and self._may_be_late else []
        due = PendingExchanges(
            pending_exchange for pending_exchange in self.pending_exchanges if pending_exchange not in late
        )
        due.wait()
        self._phases.enter("other")
        consensus = None
        if due:
            vote = self.pending_exchanges[self.sending.consensus_send_index].handle.wait().vote
            last_step = self.training_step + self.num_steps - 1
            consensus = StepConsensus.decode(vote, self.group.size, self.step_tag, self.num_steps, last_step)
            if consensus.participation_changed:
                self.participation.agree(self.group)
        is_finite = consensus is None or consensus.finite
        names = (
            () if is_finite else non_finite_parameters(self.flat_buffers, self.pending_exchanges, self.plan.is_dense)
        )
        frozen = (
            frozenset[int]() if self.plan.local_steps else self.flat_buffers.frozen
        )  # ranks' weights part in a round
        number = self._iteration_number
        self._handed = GradientWriter(
            self.flat_buffers, self.buckets, self.pending_exchanges, self._iteration, number, frozen
        )
        late, unused = late if is_finite else [], self.participation.unused
        self.arrivals = Arrivals(self.flat_buffers, self._handed, late, unused, self._phases)
        """Of a finished step: what becomes of what is `late`."""
        told, self._came_late = PendingExchanges((*self._came_late, *due)), PendingExchanges()
        sent = PendingExchanges(self.pending_exchanges)
        self.outcome = Outcome(consensus, told, self._iteration.update is not None, names, sent)
        self._hand_out(is_finite)
        return self.outcome

    @property
    def _may_be_late(self) -> bool:
        """Whether means may arrive after the update: not in a trial, nor for a GradScaler, the script or a round."""
        is_of_script = self.by_hand or self._gradients.scale or self.step_tag.trial
        return not is_of_script and self.exchanges_in_backward and self.allows_late()

    def _hand_out(self, finite: bool) -> None:
        """Make every ``grad`` what the optimizer is to see."""
        scale = self._gradients.scale
        if finite:
            self.arrivals.write_gradients(len(self.buckets), averages=self._schedule.averages, scale=scale)
            if scale is not None and self._iteration.update is None:
                self.flat_buffers.bind_gradients()  # to zeros: a scaler that sees none refuses to go on
        elif scale is None:
            self.flat_buffers.release_gradients(to_zero=self.by_hand)  # no weight moves, whoever steps it
        else:
            self.flat_buffers.grad.fill_(float("inf"))  # for the scaler of every rank to see, and to back off alike

    def late(self, tensors: Collection[int] | None = None) -> list[PendingExchange]:
        """Of a finished step: what is to be handed out of ``tensors`` (None: all) before it can be committed."""
        return [] if self.outcome is None else self.arrivals.due(tensors)

    def commit(self) -> None:
        """Keep the step: what became of each bucket, and what schemes and sparsifiers learned."""
        self.flat_buffers.commit_residuals(
            [(pending_exchange.span.start, pending_exchange.span.stop) for pending_exchange in self.pending_exchanges]
        )
        self._handed.commit()
        sent = zip(self.pending_exchanges, self.pending_exchanges.wait(), strict=True)
        self.schemes.commit(
            self.plan,
            [Sent(pending_exchange.span.start, pending_exchange.span.stop, e.sent) for pending_exchange, e in sent],
        )
        if self.pending_exchanges:
            self._summary = replace(self.pending_exchanges.summary(self._ended_at), loss=self._summary.loss)
        self._came_late = self.arrivals.completed_late
        self._iteration_number += 1
        self._next_step()

    def drop(self) -> None:
        """Leave everything as it was before the step, whose gradients are lost.

        The schedule's iteration comes again: had it passed, what it was to send would be missing from its update.
        """
        self._summary = ExchangeSummary()
        self.schemes.discard()
        for pending_exchange in self.pending_exchanges:
            pending_exchange.forget_non_finite()
        self._next_step()

    def _next_step(self) -> None:
        if self.pending_exchanges:
            self._ended_at = self.pending_exchanges.ended_at
        if self.step_tag.trial == 0:
            self.training_step += self.num_steps
        self.restart(self.step_tag.step + 1, self.step_tag.trial)
