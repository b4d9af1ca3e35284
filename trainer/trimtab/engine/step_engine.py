"""One step under any plan, whatever the way in which ranks are kept alike (`SyncMode`).

gradients    backward ──▶ exchange (under way during backward) ──▶ commit or drop ──▶ optimizer
local steps  backward ──▶ optimizer; after H of them: exchange of what they did to the weights ──▶ commit or drop
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from trimtab.engine.deferred.forward_hooks import ForwardSyncHooks
from trimtab.engine.exchange.exchanger import Exchanger
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.exchange.proxy_parameters import ProxyParameters
from trimtab.engine.gradient_sync import AlternatingOptimizers, GradientSync
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.local_sgd.local_sgd import LocalSgd
from trimtab.engine.local_sgd.second_moments import SecondMoments
from trimtab.engine.local_sgd.sync import LocalSgdSync
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.engine.optimizer.manual import ManualOptimizer
from trimtab.engine.optimizer.partial_steps import PartialSteps
from trimtab.engine.optimizer.stepper import OptimizerStepper
from trimtab.engine.parameter_checks import check_backward_reached, check_parameters_are_known, learning_rate_of
from trimtab.engine.pending_step import PendingStep
from trimtab.engine.plan_changes import PlanChanges
from trimtab.engine.profiling.profiler import StepProfiler
from trimtab.engine.sync_mode import SyncMode
from trimtab.plan.constraints import WAITING_GRADIENTS
from trimtab.plan.plan import Plan
from trimtab.plan.profile import Profile
from trimtab.transport.base import CommunicationError, StepTag
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import broadcast_tensors


class Messages(Protocol):
    """Messages of a rank to all others, as far as a step has to do with them."""

    @property
    def has_message(self) -> Callable[[], bool]:
        """Tells whether a message follows the step's exchange; called on the communication thread."""

    def plan_ahead(self) -> Callable[[], Plan | None]:
        """Begin to tell all ranks of rank 0's new plan within a round; the result waits for it."""


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
        self.pending_step = PendingStep(self.exchanger, optimizers, alternating_optimizers=alternates)
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
        self.pending_step.settle()
        return self._mode.after_optimizer(outcome)

    def discard(self) -> None:
        """Throw away what backward passes have left since the last step; where gradients cross, on every rank."""
        self.settle()
        self._mode.discard()
        self.pending_step.settle()
        self.flat_buffers.release_gradients()

    def synchronize(self) -> None:
        """Make every ``grad`` what the optimizer is to see, also where no backward pass has ended with it.

        Raises:
            UserError: Optimizers alternate.
        """
        if self.exchanger.exchanges_in_backward:
            self._before_gradients()
        self._mode.synchronize()

    def settle(self) -> None:
        """Have every parameter stepped whose gradient's mean was to arrive by the next forward pass."""
        self._forward_hooks.settle()

    def _before_backward_pass(self, index: int) -> None:
        self._stepper.check_all_have_stepped()
        if (self._alternates or self.exchanger.is_manual) and not self.exchanger.dispatcher.sends_all:
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

    @property
    def _alternates(self) -> bool:
        return self._stepper.alternating_optimizers

    def resume_at(self, step: int) -> None:
        """Go on under the present plan as if ``step`` steps of training had been taken."""
        self.plans.resume(self.plan, step)
        self.exchanger.count_from(step)

    def state_dict(self) -> dict[str, Any]:
        """Return all that is carried from step to step, but for weights, optimizer and residuals."""
        return {**self.exchanger.state_dict(), "under_way": self.local.state_dict() if self.local else {}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned, between steps and under the same plan."""
        self.exchanger.load_state_dict(state)
        if self.local is not None and state["under_way"]:
            self.local.load_state_dict(state["under_way"])
            self.exchanger.dispatcher.begin_round()

    # Rounds of local steps ----------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Have all ranks at one anchor, with nothing under way beyond its round; all call it, between steps."""
        self.settle()
        if self.plan.overlaps_rounds:
            self.end_round()

    def end_round(self) -> Outcome | None:
        """Exchange what local steps have done so far; None where there is nothing. Every rank calls it together."""
        return self._local_sync.flush()

    @contextlib.contextmanager
    def at_anchor(self) -> Iterator[None]:
        """Have the weights, inside, be those with which the present round began."""
        self.settle()
        with contextlib.nullcontext() if self.local is None else self.local.at_anchor():
            yield

    def align_weights(self) -> None:
        """Take over rank 0's weights: unlike processors round unlike, and what that adds up to is taken back."""
        self.flush()
        broadcast_tensors(self.group, self.model.parameters())
        if self.local is not None:
            self.local.set_anchor()

    # Profiles -----------------------------------------------------------------------------------------------------

    def profile(self, step: int, outcome: Outcome, loss: float | None) -> Profile | None:
        """Count ``step`` as one of training; return what the last few took, where it ends their profile."""
        if self._profiler is None:
            return None
        profile = self._profiler.stepped(step, self.plan, outcome, loss, learning_rate_of(self.optimizers[0]))
        return self.phases.learn(profile)

    def drain_traces(self) -> list[dict[str, Any]]:
        """Return what went on in profiled steps since the last call, as lines of ``trace.jsonl``; of rank 0 alone."""
        return [] if self._profiler is None else self._profiler.drain_traces()
