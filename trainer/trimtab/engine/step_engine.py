"""One step under any plan: the exchange and then the optimizer, or the optimizer and, every H steps, the exchange.

gradients   backward ──▶ exchange (under way during backward) ──▶ commit or drop ──▶ optimizer
updates     backward ──▶ optimizer; after H of them: exchange of what they did to the weights ──▶ commit or drop
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from trimtab_api.errors import UserError

from trimtab.engine.deferred.forward_hooks import ForwardSyncHooks
from trimtab.engine.exchange.exchanger import Exchanger
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.exchange.proxy_parameters import ProxyParameters
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.local_sgd.local_sgd import LocalSgd
from trimtab.engine.local_sgd.mode_switch import to_gradients, to_updates
from trimtab.engine.local_sgd.overlapped import OverlappedLocalSgd
from trimtab.engine.local_sgd.second_moments import SecondMoments
from trimtab.engine.local_sgd.sync import RoundExchange
from trimtab.engine.optimizer.alternating import only_parameters_of
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.engine.optimizer.manual import ManualOptimizer
from trimtab.engine.optimizer.pending_step import PendingStep
from trimtab.engine.optimizer.stepper import OptimizerStepper
from trimtab.engine.parameter_checks import check_backward_reached, check_parameters_are_known, learning_rate_of
from trimtab.engine.profiling.profiler import StepProfiler
from trimtab.engine.refused_plans import refuse_for_steps, refuse_waiting_gradients
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
        before_backward: Callable[[], None] = lambda: None,
        has_message: Callable[[], bool] = lambda: False,
        plan_ahead: Callable[[], Callable[[], Plan | None]] = lambda: lambda: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Every rank takes over rank 0's weights and buffers; all make one together.

        Of ``optimizers`` some are stepped by ``stepper``; others only must train nothing that ranks do not exchange.
        ``say`` takes a line for who trains, and says each once.
        For ``plan_ahead`` see `RoundExchange`, for the rest `Exchanger`.
        """
        self.flat_buffers = FlatBuffers(list(model.named_parameters()))
        broadcast_tensors(group, (*model.parameters(), *model.buffers()))
        self.group = group
        self.model, self.optimizers, self.scale = model, optimizers, scale
        self._stepper, self._alternating_optimizers, self.phases = (
            stepper,
            stepper.alternating_optimizers,
            stepper.phases,
        )
        self._before_backward = before_backward
        self.local: LocalSgd | None = None
        """The round under way, under source *update*."""
        is_profiled = group.rank == 0 and not stepper.alternating_optimizers and not isinstance(model, ProxyParameters)
        self._profiler = StepProfiler(model, self.flat_buffers) if is_profiled else None
        self.exchanger = Exchanger(
            self.flat_buffers,
            group,
            plan,
            weights=self._weights,
            loss_scale=lambda: None if self.local else scale.get(),
            before_backward=self._before_backward_pass,
            has_message=has_message,
            profiler=self._profiler,
            phases=self.phases,
        )
        """Carries out the plan's exchanges."""
        self.exchanger.by_hand = any(isinstance(each, ManualOptimizer) for each in optimizers)
        self._forward_hooks = ForwardSyncHooks(model, optimizers, self._stepper, self.exchanger, self._profiler, say)
        self.pending_step = PendingStep(
            self.exchanger, optimizers, alternating_optimizers=stepper.alternating_optimizers
        )
        rest = (scale, plan_ahead, self._adopt_in_round)
        self._moments = SecondMoments(optimizers, group.size, lambda: self.local is not None)
        self._rounds = RoundExchange(model, self.flat_buffers, self.exchanger, self._finish, lambda: self.local, *rest)
        refuse_for_steps(plan, alternating_optimizers=self._alternating_optimizers, by_hand=self.exchanger.by_hand)
        self._enter(plan)

    def close(self) -> None:
        """Let go of the model and the optimizer."""
        if self._profiler is not None:
            self._profiler.restart()
        with contextlib.suppress(CommunicationError):  # which is why the session is closed
            self._forward_hooks.settle()
            self._rounds.cancel_in_flight()
        for each in (self._forward_hooks, self._rounds, self._moments, self.exchanger):
            each.close()

    # Plans --------------------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.exchanger.plan

    @property
    def step_tag(self) -> StepTag:
        """Where in training the present step is."""
        return self.exchanger.step_tag

    def adopt(self, plan: Plan, step: int) -> None:
        """Follow ``plan`` from ``step`` on; ranks' weights are alike now, or are made so."""
        self.flush()
        self.pending_step.forget()
        if self._changes_source(plan):
            self.exchanger.leave_averages()
            if self.local is None:
                to_updates(self.flat_buffers, self.exchanger.buckets, self._stepper)
            else:
                to_gradients(self.flat_buffers, self.exchanger.buckets, self.group, self.optimizers)
        self._follow(plan, step)
        self.exchanger.training_step = step

    def _adopt_in_round(self, plan: Plan) -> None:
        """Exchange the round under way by ``plan``, whose rounds follow; what is held back stays, in its unit."""
        assert self.local is not None
        self.exchanger.adopt(plan)
        self.exchanger.restart(self.step_tag.step)
        self.local.num_steps = plan.local_steps
        if self._profiler is not None:
            self._profiler.restart()

    def try_out(self, plan: Plan, step: int, trial: int) -> None:
        """Follow ``plan`` in the trial of that number: what another source holds back is put aside."""
        self.settle()
        self.pending_step.forget()
        self._rounds.stash(self.local)
        if self._changes_source(plan):
            self.flat_buffers.residual.zero_()
            self.exchanger.buckets.clear()
        self._follow(plan, step, trial)

    def resume(self, plan: Plan, step: int) -> None:
        """Follow ``plan`` again, after a trial that has been undone."""
        self.settle()
        self.pending_step.forget()
        self._rounds.cancel_in_flight()
        self._follow(plan, step)

    def _changes_source(self, plan: Plan) -> bool:
        return bool(plan.local_steps) != (self.local is not None)

    def _follow(self, plan: Plan, step: int, trial: int = 0) -> None:
        refuse_for_steps(plan, alternating_optimizers=self._alternating_optimizers, by_hand=self.exchanger.by_hand)
        self.exchanger.adopt(plan)
        self.exchanger.restart(step, trial)
        self._enter(plan)

    def _enter(self, plan: Plan) -> None:
        if self._profiler is not None:
            self._profiler.restart()
        rounds = OverlappedLocalSgd if plan.overlaps_rounds else LocalSgd
        self.local = rounds(self.flat_buffers, plan.local_steps) if plan.local_steps else None
        self.exchanger.exchanges_in_backward = self.local is None and not self._alternating_optimizers
        self.exchanger.num_steps = 1

    def state_dict(self) -> dict[str, Any]:
        """All that is carried from step to step, but for weights, optimizer and residuals."""
        return {**self.exchanger.state_dict(), "under_way": self.local.state_dict() if self.local else {}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`, between steps and under the same plan."""
        self.exchanger.load_state_dict(state)
        if self.local is not None and state["under_way"]:
            self.local.load_state_dict(state["under_way"])
            self.exchanger.sending.begin_round()

    # Steps --------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Have every parameter stepped whose gradient's mean was to arrive by the next forward pass."""
        self._forward_hooks.settle()

    def flush(self) -> None:
        """Have all ranks at one anchor, with nothing under way beyond its round; all call it, between steps."""
        self.settle()
        if self.plan.overlaps_rounds:
            self.end_round()

    def synchronize(self) -> None:
        """Make every ``grad`` what the optimizer is to see, also where no backward pass has ended with it.

        Raises `UserError` where optimizers take turns.
        """
        if self._alternating_optimizers:
            raise UserError(
                "exchanges nothing before an optimizer's step() says whose turn it is; leave the call out",
                field="session.synchronize",
            )
        if self.local is None:
            self._before_gradients()
            self.exchanger.finish()
            self.exchanger.arrivals.write_deferred()

    def step(self) -> Outcome:
        """Commit or drop what was exchanged and step the optimizer; afterwards gradients are released."""
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

        ``optimizer``: whose turn it is, where they take turns.
        """
        self.phases.enter("other")
        self._before_gradients()  # for a step without a backward pass
        if not self.pending_step.has_begun:
            check_backward_reached(self.model, self.flat_buffers)
        if self.local is None and self._alternating_optimizers and optimizer is not None:
            with only_parameters_of(optimizer, self.flat_buffers):
                outcome = self._finish()
        elif self.local is None:
            outcome = self._finish()
        else:
            names = () if self.scale.is_scaling else self.local.non_finite_gradients()
            outcome = Outcome.of_local_step(names)
        if not outcome.updates and (outcome.is_finite or not self.scale.is_scaling):
            self.flat_buffers.release_gradients()
        return outcome

    def on_step_end(self, outcome: Outcome) -> Outcome:
        """The optimizer has stepped, or its scaler has left the step out; what became of the step by now."""
        self.pending_step.settle()
        if self.local is not None:
            self.local.count_step()
            if not self.local.is_round_over:
                self._rounds.stepped(self.local)
                return outcome
            ended = self._rounds.end(self.local)
            return replace(ended, non_finite=ended.non_finite or outcome.non_finite)
        if self.exchanger.late():
            self._forward_hooks.begin()
        if self.exchanger.sending.can_begin:
            self._forward_hooks.watch()
        return outcome

    def discard(self) -> None:
        """Throw away what backward passes have left since the last step; under source *gradient*, on every rank."""
        self.settle()
        if self.local is None:
            self.pending_step.discard()
        self.pending_step.settle()
        self.flat_buffers.release_gradients()

    def profile(self, step: int, outcome: Outcome, loss: float | None) -> Profile | None:
        """Count ``step`` as one of training; what the last few were measured to take, where it ends their profile."""
        if self._profiler is None:
            return None
        profile = self._profiler.stepped(step, self.plan, outcome, loss, learning_rate_of(self.optimizers[0]))
        return self.phases.learn(profile)

    def drain_traces(self) -> list[dict[str, Any]]:
        """What went on in profiled steps since the last call, as lines of ``trace.jsonl``; of rank 0 alone."""
        return [] if self._profiler is None else self._profiler.drain_traces()

    def end_round(self) -> Outcome | None:
        """Exchange what local steps have done so far; None where there is nothing. Every rank calls it together."""
        return None if self.local is None else self._rounds.flush(self.local)

    @contextlib.contextmanager
    def at_anchor(self) -> Iterator[None]:
        """Inside, the weights are those with which the present round began, and else as they are."""
        self.settle()
        with contextlib.nullcontext() if self.local is None else self.local.at_anchor():
            yield

    def align_weights(self) -> None:
        """Take over rank 0's weights: unlike processors round unlike, and what that adds up to is taken back."""
        self.flush()
        broadcast_tensors(self.group, self.model.parameters())
        if self.local is not None:
            self.local.set_anchor()

    def _finish(self) -> Outcome:
        outcome = self.exchanger.finish()
        if (
            self.exchanger.late() and not self._forward_hooks.allows_late()
        ):  # by a hook registered since the backward pass
            self.exchanger.arrivals.write_deferred()
        self.exchanger.arrivals.defer()
        is_whole = self.plan.is_dense and not self.exchanger.late()
        if self._profiler is not None and self._profiler.is_profiling and is_whole:
            self._profiler.exchanged(self.flat_buffers.grad, self.scale.get())
        if not outcome.is_finite:
            self.exchanger.drop()
        elif not self.exchanger.late():
            self.exchanger.commit()
        return outcome

    def _weights(self) -> Iterable[Tensor]:  # what ranks compare: in a round of local steps, where it began
        return self.model.parameters() if self.local is None else [self.local.anchor]

    def _before_backward_pass(self, index: int) -> None:
        self._stepper.check_all_have_stepped()
        if (self._alternating_optimizers or self.exchanger.by_hand) and not self.exchanger.sending.sends_all:
            refuse_waiting_gradients(self.plan)
        self._before_gradients()
        self.pending_step.pass_begins(index)

    def _before_gradients(self) -> None:
        """Before a step's first gradient is touched: what ranks do not exchange would part between them.

        Raises `UserError` where an optimizer trains a parameter that the flat buffers do not hold.
        """
        self.settle()
        self._before_backward()
        check_parameters_are_known(self.optimizers, self.model, self.flat_buffers)
