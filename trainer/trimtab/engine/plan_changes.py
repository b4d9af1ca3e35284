"""How one rank's engine goes from plan to plan; every rank does so at the same step."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trimtab.engine.deferred.forward_hooks import ForwardSyncHooks
from trimtab.engine.exchange.exchanger import Exchanger
from trimtab.engine.exchange.step_exchange import ExchangeMode
from trimtab.engine.local_sgd.mode_switch import to_gradients, to_updates
from trimtab.engine.local_sgd.sync import LocalSgdSync
from trimtab.engine.optimizer.stepper import OptimizerStepper
from trimtab.engine.pending_step import PendingStep
from trimtab.engine.profiling.profiler import StepProfiler
from trimtab.plan.constraints import Script
from trimtab.plan.plan import Plan


class PlanChanges:
    """Adopts plans for good, and tries others out."""

    def __init__(
        self,
        exchanger: Exchanger,
        local_sync: LocalSgdSync,
        forward_hooks: ForwardSyncHooks,
        pending_step: PendingStep,
        *,
        optimizers: Sequence[torch.optim.Optimizer],
        stepper: OptimizerStepper,
        profiler: StepProfiler | None,
    ) -> None:
        """Enter the plan that ``exchanger`` follows.

        Raises:
            UserError: Optimizers alternate or the script steps by itself, and the plan does not allow that.
        """
        self._exchanger, self._local_sync, self._forward_hooks = exchanger, local_sync, forward_hooks
        self._pending_step, self._profiler = pending_step, profiler
        self._optimizers, self._stepper = optimizers, stepper
        self._refuse_if_unfit(exchanger.plan)
        self._enter(exchanger.plan)

    def adopt(self, plan: Plan, step: int) -> None:
        """Follow ``plan`` from ``step`` on; ranks' weights are alike now, or are made so."""
        exchanger, flat_buffers = self._exchanger, self._exchanger.flat_buffers
        self._forward_hooks.settle()
        if exchanger.plan.overlaps_rounds:
            self._local_sync.flush()
        self._pending_step.forget()
        if self._changes_mode(plan):
            exchanger.leave_averages()
            if self._local_sync.local is None:
                to_updates(flat_buffers, exchanger.buckets, self._stepper)
            else:
                to_gradients(flat_buffers, exchanger.buckets, exchanger.group, self._optimizers)
        self._follow(plan, step)
        exchanger.count_from(step)

    def try_out(self, plan: Plan, step: int, trial: int) -> None:
        """Follow ``plan`` in the trial of that number: what another mode holds back is put aside."""
        self._forward_hooks.settle()
        self._pending_step.forget()
        self._local_sync.stash()
        if self._changes_mode(plan):
            self._exchanger.flat_buffers.residual.zero_()
            self._exchanger.buckets.clear()
        self._follow(plan, step, trial)

    def resume(self, plan: Plan, step: int) -> None:
        """Follow ``plan`` again, after a trial that has been undone."""
        self._forward_hooks.settle()
        self._pending_step.forget()
        self._local_sync.cancel_in_flight()
        self._follow(plan, step)

    def _changes_mode(self, plan: Plan) -> bool:
        return bool(plan.local_steps) != (self._local_sync.local is not None)

    def _follow(self, plan: Plan, step: int, trial: int = 0) -> None:
        self._refuse_if_unfit(plan)
        self._exchanger.adopt(plan)
        self._exchanger.restart(step, trial)
        self._enter(plan)

    def _refuse_if_unfit(self, plan: Plan) -> None:
        script = Script(alternates=self._stepper.alternating_optimizers, is_manual=self._exchanger.is_manual)
        plan.check_for(script)

    def _enter(self, plan: Plan) -> None:
        if self._profiler is not None:
            self._profiler.restart()
        self._local_sync.enter(plan)
        if plan.local_steps:
            self._exchanger.enter(ExchangeMode.PER_ROUND)
        elif self._stepper.alternating_optimizers:
            self._exchanger.enter(ExchangeMode.AT_OPTIMIZER)
        else:
            self._exchanger.enter(ExchangeMode.IN_BACKWARD)
