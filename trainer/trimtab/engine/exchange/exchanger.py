"""One iteration's gradients: what the schedule has sent of them, in what order, and what came of it.

Backward fills the flat buffers tensor by tensor. As soon as the next bucket in the schedule's order is filled, its
exchange is queued, while backward goes on: one thread compresses it, another sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from torch import Tensor
from trimtab_api.catalogue import schedules
from trimtab_api.errors import UserError

from trimtab.engine.exchange.arrivals import Arrivals
from trimtab.engine.exchange.backward_passes import BackwardPasses, WatchesGradients
from trimtab.engine.exchange.buckets import Buckets
from trimtab.engine.exchange.dispatcher import BucketDispatcher, StepContext
from trimtab.engine.exchange.in_flight import PendingExchange, PendingExchanges
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.exchange.own_report import OwnReport
from trimtab.engine.exchange.scheme_registry import Schemes
from trimtab.engine.exchange.step_exchange import ExchangeMode, StepExchange, TrainingSteps
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.gradients.gather import Gradients
from trimtab.engine.gradients.participation import ParameterUsage
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.engine.optimizer.partial_steps import PartialSteps
from trimtab.engine.phase_timer import PhaseTimer
from trimtab.plan import schedules as schedule
from trimtab.plan.plan import Plan
from trimtab.sparsifiers.base import Sent
from trimtab.transport.base import StepTag
from trimtab.transport.group import Group


class Exchanger:
    """Carries out the plan in force for one set of flat buffers over one group.

    By default an exchange begins with the first gradient of a backward pass, and is finished when that pass ends.
    Afterwards every ``grad`` is what the optimizer is to see, times the loss scale.
    """

    def __init__(
        self,
        flat_buffers: FlatBuffers,
        group: Group,
        plan: Plan,
        *,
        weights: Callable[[], Iterable[Tensor]],
        scale: LossScale | None = None,
        before_backward: Callable[[int], None] = lambda _: None,
        has_message: Callable[[], bool] = lambda: False,
        partial_steps: PartialSteps | None = None,
        is_manual: bool = False,
        profiler: WatchesGradients | None = None,
        phases: PhaseTimer | None = None,
    ) -> None:
        """Follow ``plan``, with gradients exchanged in backward passes.

        ``weights`` returns those that ranks compare; ``scale`` is a GradScaler's. ``before_backward`` takes the index
        of each pass's first gradient. ``has_message``, called on the communication thread, tells whether a message of
        rank 0 follows the step. ``partial_steps`` tells whether the optimizer may step some parameters later (None: it
        may). ``is_manual``: the script changes the weights by itself, as soon as ``backward()`` has returned.
        """
        self.flat_buffers, self.group, self.is_manual = flat_buffers, group, is_manual
        self._scale, self._partial_steps = scale, partial_steps
        self._phases = phases or PhaseTimer()
        self._mode = ExchangeMode.IN_BACKWARD
        self.schemes = Schemes(group, flat_buffers)
        self.participation = ParameterUsage(flat_buffers.names)
        self._gradients = Gradients(flat_buffers, self.participation, self._loss_scale)
        self.buckets = Buckets(flat_buffers, [])
        self._links = (group, *group.extra_links)
        self._schedule = schedule.create(schedules.default, 0)
        self._report = OwnReport(group, self.participation, weights, has_message)
        self._training_steps = TrainingSteps(first=0, num=1)
        self.adopt(plan)
        self.restart(step=0)
        self.passes = BackwardPasses(flat_buffers, self, before_backward, profiler, self._phases)

    def close(self) -> None:
        """Let go of the parameters."""
        self.passes.close()

    def adopt(self, plan: Plan) -> None:
        """Follow ``plan`` from the next `restart` on; moves only what waits. Nothing may be deferred."""
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
        self._report.restart()
        self.plan = plan
        parts = (self.flat_buffers, buckets, self._gradients, self.participation, self.schemes)
        self._context = StepContext(plan, follows, *parts, self._links, self._phases)

    def enter(self, mode: ExchangeMode) -> None:
        """Exchange gradients in ``mode`` from now on, one training step each time."""
        self._mode, self._training_steps = mode, TrainingSteps(self.training_step, num=1)

    def leave_averages(self) -> None:
        """Hold what an update would have made of what is held, for what comes next takes all of that as it is."""
        if self._schedule.averages:
            self.buckets.to_means()

    def state_dict(self) -> dict[str, Any]:
        """Return all that is carried from step to step under the present plan, but for residuals."""
        return {
            "iteration": self._iteration_number,
            "summary": self._report.summary,
            "buckets": self.buckets.state_dict(),
            "schemes": self.schemes.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned, between steps and under the same plan."""
        self._iteration_number = state["iteration"]
        self._report.restart(state["summary"])
        self.buckets.load_state_dict(state["buckets"])
        self.schemes.load_state_dict(state["schemes"])
        self.restart(self.step_tag.step, self.step_tag.trial)

    # The step under way -----------------------------------------------------------------------------------------

    def restart(self, step: int, trial: int = 0) -> None:
        """Begin ``step``, of a trial where that has a number; what has been done of a step is forgotten."""
        tag = StepTag(step, self.plan.version, trial)
        for link in self._links:
            link.tag_jobs(tag)
        self._gradients.restart()
        self._step = StepExchange(self._context, self._iteration_number, tag, self._flags)

    @property
    def step_tag(self) -> StepTag:
        """Step, plan version and trial under way; the step counts exchanges."""
        return self._step.step_tag

    @property
    def training_step(self) -> int:
        """The first training step that the next exchange is of."""
        return self._training_steps.first

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the step's exchange, once it is finished; else None."""
        return None if self._step.finished is None else self._step.finished.outcome

    @property
    def arrivals(self) -> Arrivals:
        """The gradients of the finished step, some of which may be `deferred`."""
        assert self._step.finished is not None
        return self._step.finished.arrivals

    @property
    def dispatcher(self) -> BucketDispatcher:
        """The sends of the present step."""
        return self._step.dispatcher

    @property
    def pending_exchanges(self) -> PendingExchanges:
        """The exchanges of the present step, as far as they have been sent."""
        return self._step.pending

    @property
    def exchanges_in_backward(self) -> bool:
        """True if a backward pass outside of `no_sync` exchanges its gradients; else only `finish` does."""
        return self._mode is ExchangeMode.IN_BACKWARD

    @property
    def is_mid_step(self) -> bool:
        """True if gradients of the present step have been sent."""
        return self._gradients.has_begun

    def count_from(self, training_step: int) -> None:
        """Take the next exchange for one of that training step."""
        self._training_steps = replace(self._training_steps, first=training_step)

    def cover_steps(self, num_steps: int) -> None:
        """Take the next exchange for one of so many training steps, those of a round."""
        self._training_steps = replace(self._training_steps, num=num_steps)

    # Filling and sending ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Send what has waited for the present step: a forward pass of training has begun."""
        if self.exchanges_in_backward and not self.is_mid_step and self.outcome is None and self.step_tag.trial == 0:
            self.dispatcher.begin()

    def _loss_scale(self) -> float | None:
        if self._scale is None or self._mode is ExchangeMode.PER_ROUND:  # updates of local steps carry none
            return None
        return self._scale.get()

    def check_gradient(self, index: int) -> None:
        """Raise `UserError` if tensor ``index``'s gradient has been sent already: a gradient comes once a step."""
        self._gradients.check_not_gathered(index)

    def refuse(self, refusal: UserError) -> None:
        """Finish no step with the gradients of this pass: they are neither the rank's own nor the mean."""
        self._step.refuse(refusal)

    def take_gradient(self, index: int) -> None:
        """Send what tensor ``index``'s gradient completes, if gradients are exchanged in backward passes."""
        if self.exchanges_in_backward:
            self._gradients.begin()
            self.dispatcher.gather(index)

    def end_pass(self) -> None:
        """Finish the exchange, if it has begun: a backward pass has ended."""
        if self._gradients.has_begun:
            self.finish()

    @property
    def own_squared_norm(self) -> float:
        """Squared norm of what this rank put into the last exchange that was reported."""
        return self._report.own_squared_norm

    def report_loss(self, loss: float | None) -> None:
        """Have the next vote carry the loss of the step or round whose exchange is over."""
        self._report.add_loss(loss)

    def _flags(self) -> Tensor:
        return self._report.flags(self._step, self._training_steps)

    def finish(self) -> Outcome:
        """Send what is left, wait for all that the optimizer needs, and write the gradients that it is to see.

        Raises:
            UserError: A backward pass was refused, or has begun and not ended: its gradients are not whole.
        """
        if self.outcome is not None and self._step.refusal is None:
            return self.outcome
        self._step.send_rest(is_inside_backward=self.passes.is_inside)
        may_defer = bool(self.dispatcher.deferred) and self._may_defer
        finished = self._step.wait(self._training_steps, self._report.came_late, may_defer=may_defer)
        self._step.write_gradients(to_zero=self.is_manual)  # no weight moves by a dropped step, whoever takes it
        return finished.outcome

    @property
    def _may_defer(self) -> bool:
        """True if means may arrive after the update: not in a trial, nor for a GradScaler, the script or a round."""
        is_of_script = self.is_manual or self._gradients.scale or self.step_tag.trial
        may = self.exchanges_in_backward and not is_of_script
        return may and (self._partial_steps is None or self._partial_steps.are_possible())

    def late(self, tensors: Collection[int] | None = None) -> list[PendingExchange]:
        """Return what of ``tensors`` (None: all) has yet to be written before the finished step can be committed."""
        return self._step.deferred(tensors)

    def commit(self) -> None:
        """Keep the step: what became of each bucket, and what schemes and sparsifiers learned."""
        finished, pending = self._step.finished, self.pending_exchanges
        assert finished is not None
        self.flat_buffers.commit_residuals([(exchange.span.start, exchange.span.stop) for exchange in pending])
        finished.writer.commit()
        brought = zip(pending, pending.wait(), strict=True)
        sent = [Sent(exchange.span.start, exchange.span.stop, result.sent) for exchange, result in brought]
        self.schemes.commit(self.plan, sent)
        self._report.committed(pending, finished)
        self._iteration_number += 1
        self._next_step()

    def drop(self) -> None:
        """Leave everything as it was before the step, whose gradients are lost.

        The schedule's iteration comes again: had it passed, what it was to send would be missing from its update.
        """
        self.schemes.discard()
        self.pending_exchanges.forget_non_finite()
        self._report.dropped(self.pending_exchanges)
        self._next_step()

    def discard(self) -> None:
        """Forget what was exchanged for the step, which begins anew; every rank calls it together."""
        tag, training_step = self.step_tag, self.training_step
        self.finish()
        self.forget()
        self.restart(tag.step, tag.trial)
        self.count_from(training_step)

    def forget(self) -> None:
        """Drop a finished step, once all of it has arrived."""
        self.pending_exchanges.wait()
        self.drop()

    def _next_step(self) -> None:
        if self.step_tag.trial == 0:
            self.count_from(self.training_step + self._training_steps.num)
        self.restart(self.step_tag.step + 1, self.step_tag.trial)
