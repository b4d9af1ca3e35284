"""One step under any plan, whatever the way in which ranks are kept alike (`SyncMode`).

gradients    backward ──▶ exchange (under way during backward) ──▶ commit or drop ──▶ optimizer
local steps  backward ──▶ optimizer; after H of them: exchange of what they did to the weights ──▶ commit or drop
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from trimtab.engine.debug_state import DebugState, debug_state
from trimtab.engine.deferred.forward_hooks import ForwardSyncHooks
from trimtab.engine.exchange.exchanger import Exchanger
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.exchange.proxy_parameters import ProxyParameters
from trimtab.engine.gradient_sync import AlternatingOptimizers, GradientSync
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.local_sgd.local_sgd import LocalSgd
from trimtab.engine.local_sgd.second_moments import SecondMoments
from trimtab.engine.local_sgd.sync import LocalSgdSync
from trimtab.engine.messages import Messages
from trimtab.engine.model_checks import check_backward_reached, check_parameters_are_known, learning_rate_of
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.engine.optimizer.modes import ManualOptimizer
from trimtab.engine.optimizer.partial_steps import PartialSteps
from trimtab.engine.optimizer.stepper import OptimizerStepper
from trimtab.engine.pending_step import PendingStep
from trimtab.engine.plan_changes import PlanChanges
from trimtab.engine.profiling.profiler import StepProfiler
from trimtab.engine.rounds import Rounds
from trimtab.engine.sync_mode import SyncMode
from trimtab.plan.constraints import WAITING_GRADIENTS
from trimtab.plan.plan import Plan
from trimtab.plan.profile import Profile
from trimtab.transport.base import CommunicationError, StepTag
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import broadcast_tensors


class StepEngine:
    """Takes the steps of one model on one rank, which are the same steps on every rank."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        group: Group,
        plan: Plan,
        *,
        scale: LossScale,
        stepper: OptimizerStepper,
        messages: Messages,
        before_backward: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        """Take over rank 0's weights and buffers; all ranks make their engines together.

        Args:
            model: The model, whose parameters are exchanged.
            optimizers: Some are stepped by ``stepper``; others only must train nothing that ranks do not exchange.
            group: The ranks.
            plan: What to follow first.
            scale: A GradScaler's, or none.
            stepper: Steps the optimizers, and tells whether they alternate.
            messages: Messages to all ranks.
            before_backward: Is called before a step's first gradient is touched; it may refuse the pass.
            say: Takes a line for people, and prints each once.
        """
        self.flat_buffers = FlatBuffers(list(model.named_parameters()))
        broadcast_tensors(group, (*model.parameters(), *model.buffers()))
        self.group = group
        self.model, self.optimizers, self.scale = model, optimizers, scale
        self._stepper, self.phases = stepper, stepper.phases
        self._before_backward = before_backward
        alternates, is_manual = stepper.alternating_optimizers, any(isinstance(o, ManualOptimizer) for o in optimizers)
        is_profiled = group.rank == 0 and not alternates and not isinstance(model, ProxyParameters)
        self._profiler = StepProfiler(model, self.flat_buffers) if is_profiled else None
        partial_steps = PartialSteps(model, optimizers, say)
        self.exchanger = Exchanger(
            self.flat_buffers,
            group,
            plan,
            weights=lambda: self._mode.compared_weights(),
            scale=scale,
            before_backward=self._before_backward_pass,
            has_message=messages.has_message,
            partial_steps=partial_steps,
            is_manual=is_manual,
            profiler=self._profiler,
            phases=self.phases,
        )
        """Carries out the plan's exchanges."""
        self._forward_hooks = ForwardSyncHooks(model, optimizers, stepper, self.exchanger, self._profiler)
        self.pending_step = PendingStep(self.exchanger, optimizers, stepper.progress, alternating_optimizers=alternates)
        self._gradient_sync = (AlternatingOptimizers if alternates else GradientSync)(
            model,
            self.exchanger,
            self.pending_step,
            forward_hooks=self._forward_hooks,
            partial_steps=partial_steps,
            scale=scale,
            profiler=self._profiler,
        )
        self._local_sync = LocalSgdSync(
            model,
            self.exchanger,
            self._gradient_sync,
            scale=scale,
            plan_ahead=messages.plan_ahead,
            profiler=self._profiler,
        )
        self._moments = SecondMoments(optimizers, group.size, lambda: self.local is not None)
        self.rounds = Rounds(model, self.exchanger, self._local_sync, self._forward_hooks)
        """Rounds of local steps, to end them and to look at."""
        self.plans = PlanChanges(
            self.exchanger,
            self._local_sync,
            self._forward_hooks,
            self.pending_step,
            optimizers=optimizers,
            stepper=stepper,
            profiler=self._profiler,
        )
        """Follows other plans."""

    def close(self) -> None:
        """Let go of the model and the optimizer."""
        if self._profiler is not None:
            self._profiler.restart()
        with contextlib.suppress(CommunicationError):  # which is why the session is closed
            self._forward_hooks.settle()
            self._local_sync.cancel_in_flight()
        for part in (self._forward_hooks, self._local_sync, self._moments, self.exchanger):
            part.close()

    # A step -------------------------------------------------------------------------------------------------------

    def step(self) -> Outcome:
        """Take the step whose backward pass has ended; afterwards gradients are released."""
        outcome = self.finalize_gradients()
        if outcome.updates if outcome.is_finite else self.scale.is_scaling:
            self._stepper.step()  # where it is not finite, for the scaler to leave it out
        elif outcome.is_finite:
            self._stepper.skip_step()
        outcome = self.on_step_end(outcome)
        self.flat_buffers.release_gradients()
        return outcome

    def finalize_gradients(self, optimizer: torch.optim.Optimizer | None = None) -> Outcome:
        """Commit or drop what was exchanged; then the optimizer is to step, and moves nothing where it should not.

        Args:
            optimizer: The one that steps, where several alternate.
        """
        self.phases.enter("other")
        self._before_gradients()  # for a step without a backward pass
        if not self.pending_step.has_begun:
            check_backward_reached(self.model, self.flat_buffers)
        outcome = self._mode.before_optimizer(optimizer)
        if not outcome.updates and (outcome.is_finite or not self.scale.is_scaling):
            self.flat_buffers.release_gradients()
        return outcome

    def on_step_end(self, outcome: Outcome) -> Outcome:
        """Return what became of the step, once the optimizer has stepped or its scaler has skipped the step."""
        self.pending_step.end()
        return self._mode.after_optimizer(outcome)

    def skip(self) -> Outcome | None:
        """Throw away what backward passes have left; return what became of a local step, which counts, else None."""
        self.settle()
        self._mode.discard()
        self.pending_step.end()
        self.flat_buffers.release_gradients()
        return None if self.local is None else self._end_local_step()

    def leave_step(self) -> Outcome | None:
        """Count a backward pass that no step followed, within a round, as a local step.

        The script asks for the next batch. Each rank judges by its own gradients there, and rounds must end together.

        Returns:
            What became of that step; None where there is none.
        """
        if self.local is None or not self.pending_step.is_pending:
            return None
        self.pending_step.check_weights()
        outcome = self._end_local_step()
        self.pending_step.leave()
        return outcome

    def _end_local_step(self) -> Outcome:
        """Count a step that was thrown away; the script's gradients, if it has left any, stay as they are."""
        parameters = self.flat_buffers.parameters
        kept = [self.flat_buffers.kept(parameter.grad) for parameter in parameters]
        outcome = self.on_step_end(Outcome.of_local_step(()))
        for parameter, grad in zip(parameters, kept, strict=True):
            parameter.grad = grad
        return outcome

    @property
    def has_begun(self) -> bool:
        """True if a backward pass has begun, and no step has followed."""
        return self.pending_step.has_begun

    @property
    def is_discardable(self) -> bool:
        """True if the step's exchange is over and finite, so that a scaler had no reason to leave the step out."""
        outcome = self.exchanger.outcome
        return self.local is None and outcome is not None and outcome.is_finite

    def synchronize(self) -> None:
        """Make every ``grad`` what the optimizer is to see, also where no backward pass has ended with it.

        Raises:
            UserError: Optimizers alternate.
        """
        if self.exchanger.exchanges_in_backward:
            self._before_gradients()
        self._mode.synchronize()

    def at_anchor(self) -> contextlib.AbstractContextManager[None]:
        """Have the weights, inside, be those with which the present round began."""
        return self.rounds.at_anchor()

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Have backward passes inside only accumulate."""
        return self.exchanger.passes.no_sync()

    def settle(self) -> None:
        """Have every parameter stepped whose gradient's mean was to arrive by the next forward pass."""
        self._forward_hooks.settle()

    def _before_backward_pass(self, index: int) -> None:
        self._stepper.check_all_have_stepped()
        is_of_script = self._stepper.alternating_optimizers or self.exchanger.is_manual
        if is_of_script and not self.exchanger.dispatcher.sends_all:
            raise WAITING_GRADIENTS.error(self.plan.schedule, self.plan.source)
        self._before_gradients()
        self.pending_step.pass_begins(index)

    def _before_gradients(self) -> None:
        """Refuse, before a step's first gradient is touched, what ranks do not exchange: it would part them.

        Raises:
            UserError: An optimizer trains a parameter that the flat buffers do not hold.
        """
        self.settle()
        self._before_backward()
        check_parameters_are_known(self.optimizers, self.model, self.flat_buffers)

    # Plans --------------------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.exchanger.plan

    @property
    def step_tag(self) -> StepTag:
        """Tag of the present step: step, plan version and trial."""
        return self.exchanger.step_tag

    @property
    def local(self) -> LocalSgd | None:
        """The round under way, while the plan has local steps."""
        return self._local_sync.local

    @property
    def _mode(self) -> SyncMode:
        return self._gradient_sync if self.local is None else self._local_sync

    def resume_at(self, step: int) -> None:
        """Go on under the present plan as if ``step`` steps of training had been taken."""
        self.plans.resume(self.plan, step)
        self.exchanger.count_from(step)

    def debug_state(self) -> DebugState:
        """Return what the exchange holds, for people and tests; it waits for nothing."""
        return debug_state(self.exchanger, None if self.local is None else self.local.anchor)

    def profile(self, step: int, outcome: Outcome, loss: float | None) -> Profile | None:
        """Count ``step`` as one of training; return what the last few took, where it ends their profile."""
        if self._profiler is None:
            return None
        profile = self._profiler.stepped(step, self.plan, outcome, loss, learning_rate_of(self.optimizers[0]))
        return self.phases.learn(profile)

    def drain_traces(self) -> list[dict[str, Any]]:
        """Return what went on in profiled steps since the last call, as lines of ``trace.jsonl``; of rank 0 alone."""
        return [] if self._profiler is None else self._profiler.drain_traces()
